//! Many processes on one folder that are killed at any moment, while entries are spoilt and, where
//! one can be mounted, on a disk that is full: who finds a key finds its code and nothing else.

use super::folder::{Folder, LIMIT};
use super::{Claim, Look, cubin, entry, key, spawn};
use crate::backend::cuda::code_store::CodeStore;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const PROCESSES: u64 = 8;
/// Keys that all of them want.
const KEYS: u64 = 40;
/// How long it goes on, and the pause between two things that happen.
const LENGTH: Duration = Duration::from_millis(2500);
const PAUSE: Duration = Duration::from_millis(4);
/// So few bytes that entries go for want of room all the time.
const SMALL: u64 = 40_000;

/// Drawn numbers.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }
}

/// The code of a key: each has another length.
fn code_of(number: u64) -> crate::backend::cuda::nvrtc::Cubin {
    cubin(500 + 61 * number as usize)
}

/// What a process does: looks for keys, and compiles what is not there, until its input ends. `role`
/// has a seed and the bytes of the store.
pub(super) fn process(role: &str, place: PathBuf) {
    let numbers: Vec<u64> = role.split(' ').filter_map(|word| word.parse().ok()).collect();
    let [seed, limit] = numbers[..] else { panic!("{role} is no role") };
    let (store, mut draw, mut looks) = (CodeStore::new(place, limit), Draw(seed), 0);
    let ended = std::thread::spawn(|| std::io::stdin().read_to_end(&mut Vec::new()));
    while !ended.is_finished() {
        let number = draw.below(KEYS);
        looks += 1;
        match store.look(key(number.into())) {
            Look::Found(found) => assert!(found == code_of(number), "the wrong code of key {number}"),
            Look::Absent(claim) => compile(claim, number, &mut draw),
        }
    }
    let counts = store.counts();
    println!("\nheld {looks} {} {} {}", counts.hits, counts.damaged, counts.unstored);
    std::io::stdout().flush().expect("flushes");
}

fn compile(claim: Claim<'_>, number: u64, draw: &mut Draw) {
    std::thread::sleep(Duration::from_micros(draw.below(300)));
    // A text that is refused is not stored.
    if draw.below(8) > 0 {
        claim.store(&code_of(number));
    }
}

/// Spoils an entry, or leaves something in the folder that is none.
fn spoil(folder: &Folder, draw: &mut Draw) {
    let number = draw.below(KEYS);
    let (path, other) = (folder.entry(key(number.into())), folder.entry(key(draw.below(KEYS).into())));
    let Ok(mut bytes) = std::fs::read(&path) else { return };
    let place = draw.below(bytes.len().max(1) as u64) as usize;
    // What cannot be written, on a full disk say, is not spoilt.
    let _ = match draw.below(6) {
        0 => std::fs::File::options().write(true).open(&path).and_then(|file| file.set_len(place as u64)),
        1 => std::fs::copy(&other, &path).map(drop),
        2 => std::fs::write(&path, b"#!/bin/sh\n"),
        3 => std::fs::remove_file(&path),
        4 => std::fs::write(folder.join(format!("{}.1-1.tmp", key(number.into()))), &bytes[..place]),
        _ => {
            bytes.iter_mut().skip(place).take(1).for_each(|byte| *byte ^= 1 << (place % 8));
            std::fs::write(&path, bytes)
        }
    };
}

/// What came of it: looks, hits, damaged entries and such as could not be stored, of those that ended well.
#[derive(Debug, Default)]
struct Held {
    counts: [u64; 4],
    killed: u64,
}

fn torture(name: &str, limit: u64) -> (Folder, Held) {
    let (folder, mut draw, mut held) = (Folder::new(name), Draw(7), Held::default());
    let start = |number: u64| spawn(&folder, &format!("torture {number} {limit}"), None);
    let mut children: Vec<Child> = (0..PROCESSES).map(start).collect();
    let started = Instant::now();
    while started.elapsed() < LENGTH {
        spoil(&folder, &mut draw);
        if draw.below(12) == 0 {
            let number = draw.below(PROCESSES) as usize;
            children[number].kill().expect("kills");
            // One that had found something wrong had ended before.
            let status = children[number].wait().expect("ends");
            assert_ne!(status.code(), Some(101), "a process found the wrong code");
            held.killed += 1;
            children[number] = start(1000 + held.killed);
        }
        std::thread::sleep(PAUSE);
    }
    for mut child in children {
        drop(child.stdin.take());
        let mut text = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut text).expect("reads");
        assert!(child.wait().expect("ends").success(), "{text}");
        let line = text.lines().find_map(|line| line.strip_prefix("held ")).expect("what it held");
        let counts = line.split(' ').map(|word| word.parse::<u64>().expect("a number"));
        held.counts.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
    }
    (folder, held)
}

/// The folder is none the worse for it: every key is had, and stays.
fn check_whole(folder: &Folder) {
    let store = CodeStore::new(&**folder, LIMIT);
    for number in 0..KEYS {
        let wanted = code_of(number);
        match store.look(key(number.into())) {
            Look::Found(found) => assert!(found == wanted),
            Look::Absent(claim) => claim.store(&wanted),
        }
        assert!(matches!(store.look(key(number.into())), Look::Found(found) if found == wanted), "{number}");
        let whole = std::fs::read(folder.entry(key(number.into()))).expect("an entry");
        assert!(entry::decode(key(number.into()), &whole).is_some());
    }
    assert_eq!(store.counts().waits, 0, "the dead hold no lock");
}

#[test]
fn killed_processes_and_spoilt_entries_give_nobody_the_wrong_code() {
    let (folder, held) = torture("torture", SMALL);
    let [looks, hits, damaged, unstored] = held.counts;
    assert!(held.killed > 5 && looks > 500 && hits > 100 && damaged > 0, "{held:?}");
    assert_eq!(unstored, 0, "{held:?}");
    check_whole(&folder);
}

/// On the disk that `needs_mount_..` below mounts and names.
#[test]
#[ignore = "played by another test"]
fn small_disk() {
    let (folder, held) = torture("full", LIMIT);
    let [looks, hits, _, unstored] = held.counts;
    assert!(held.killed > 5 && looks > 500 && hits > 0 && unstored > 0, "{held:?}");
    // With room again all is well, and what half-written files took is given back.
    for name in folder.files() {
        std::fs::remove_file(folder.join(name)).expect("removes");
    }
    let store = folder.store();
    let Look::Absent(claim) = store.look(key(1)) else { panic!("nothing is there") };
    claim.store(&code_of(1));
    assert!(matches!(store.look(key(1)), Look::Found(found) if found == code_of(1)));
    println!("\nthe disk was full: {held:?}");
}

#[test]
#[ignore = "needs a file system of its own, which root can mount"]
fn needs_mount_a_full_disk_gives_nobody_the_wrong_code() {
    let folder = Folder::new("mount");
    std::fs::create_dir_all(&folder).expect("a folder");
    let disk: &Path = &folder;
    let script = "mount -t tmpfs -o size=64k tmpfs \"$1\" || exit 77; TMPDIR=\"$1\" exec \"$0\" --exact --ignored --nocapture \
                  backend::cuda::code_store::tests::torture::small_disk";
    let mut command = Command::new("unshare");
    command.args(["-m", "bash", "-c", script]).arg(std::env::current_exe().expect("a binary")).arg(disk);
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert_ne!(output.status.code(), Some(77), "no file system can be mounted here: {text}");
    assert!(output.status.success() && text.contains("the disk was full"), "{text}");
}
