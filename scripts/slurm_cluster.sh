#!/usr/bin/env bash
# A throw-away Slurm cluster on this machine: a controller and NODES nodes, each a slurmd of its own on localhost.
# For trying `--launcher slurm`, and for its test; nothing outside of FOLDER is written, and no job of anybody else is seen.
#
#   scripts/slurm_cluster.sh start FOLDER [NODES]      prints what to put into the environment
#   scripts/slurm_cluster.sh stop FOLDER
#   scripts/slurm_cluster.sh lose FOLDER NODE          kills a node with all that runs on it, as if its power were cut
#
# Needs slurmctld, slurmd and munged (Debian: apt-get install slurm-wlm munge). Jobs run as the user who starts it.
set -euo pipefail

usage() { sed -n '5,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
[ $# -ge 2 ] || usage
mkdir -p "$2"
folder=$(cd "$2" && pwd)
export SLURM_CONF=$folder/slurm.conf PATH=$PATH:/usr/sbin:/sbin

# A free port of this machine, and as many behind it.
ports() {
    local port
    for port in $(shuf -i 20000-60000 -n 50); do
        local free=1 offset
        for offset in $(seq 0 "$1"); do
            ! (exec 3<> "/dev/tcp/127.0.0.1/$((port + offset))") 2> /dev/null || free=
        done
        [ -z "$free" ] || { echo "$port"; return; }
    done
    echo "no free ports" >&2
    return 1
}

# Ends a node at once: its slurmd, and the sessions of the tasks that it runs.
lose() {
    local environ session file=$folder/$1.pid
    [ -f "$file" ] || { echo "there is no node $1" >&2; exit 2; }
    kill -9 "$(cat "$file")" || true
    rm -f "$file"
    # What runs on it has its name and that of this cluster in the environment; workers of a task are in its session.
    for environ in /proc/[0-9]*/environ; do
        if grep -qzx "SLURMD_NODENAME=$1" "$environ" 2> /dev/null && grep -qzxF "SLURM_CONF=$SLURM_CONF" "$environ"; then
            session=$(ps -o sid= "$(basename "$(dirname "$environ")")" | tr -d ' ')
            # shellcheck disable=SC2046
            [ -z "$session" ] || kill -9 $(ps -o pid= --sid "$session") 2> /dev/null || true
        fi
    done
    # What a monitor of power would say; without it the controller waits until the node does not answer.
    scontrol update NodeName="$1" State=DOWN Reason=lost
}

# Ends all of the cluster: tasks first, then the daemons.
stop() {
    local file
    scancel --user="$(id -un)" 2> /dev/null || true
    for _ in $(seq 25); do
        [ -n "$(squeue --noheader 2> /dev/null)" ] || break
        sleep 0.2
    done
    for file in "$folder"/*.pid; do
        [ ! -f "$file" ] || kill -9 "$(cat "$file")" 2> /dev/null || true
        rm -f "$file"
    done
    rm -rf "$folder/munge.socket" "$folder/munge.socket.lock" "$folder/spool" "$folder/state"
}

configure() {
    local nodes=$1 port user
    port=$(ports $((nodes + 1)))
    user=$(id -un)
    cat > "$SLURM_CONF" << END
ClusterName=throwaway
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmUser=$user
SlurmdUser=$user
SlurmctldPort=$port
AuthInfo=socket=$folder/munge.socket
CryptoType=crypto/munge
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool/%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/%n.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=2
# A node that does not answer is lost after seconds, not minutes.
SlurmdTimeout=6
SlurmctldTimeout=10
KillWait=2
InactiveLimit=0
MinJobAge=300
SchedulerParameters=sched_interval=1,bf_interval=1
JobRequeue=1
NodeName=n[1-$nodes] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=[$((port + 1))-$((port + nodes))] CPUs=2 RealMemory=500 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=60 State=UP OverSubscribe=NO
END
}

start() {
    local nodes=$1 node
    for program in munged slurmctld slurmd sbatch; do
        command -v "$program" > /dev/null || { echo "$program is missing: install slurm-wlm and munge" >&2; exit 20; }
    done
    mkdir -p "$folder/state" "$folder/spool"
    chmod 700 "$folder"
    head -c 1024 /dev/urandom > "$folder/munge.key"
    chmod 600 "$folder/munge.key"
    munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
        --log-file="$folder/munged.log" --seed-file="$folder/munge.seed"
    configure "$nodes"
    slurmctld -c
    for node in $(seq "$nodes"); do
        mkdir -p "$folder/spool/n$node"
        slurmd -N "n$node"
    done
    for _ in $(seq 100); do
        [ "$(sinfo --noheader --format=%D --states=idle 2> /dev/null)" != "$nodes" ] || break
        sleep 0.2
    done
    [ "$(sinfo --noheader --format=%D --states=idle)" = "$nodes" ] || { sinfo --Node >&2; exit 20; }
    echo "export SLURM_CONF=$SLURM_CONF"
}

case $1 in
    start) start "${3:-4}" ;;
    stop) stop ;;
    lose) [ $# -eq 3 ] || usage; lose "$3" ;;
    *) usage ;;
esac
