//! The store without a compiler: what is found, what is not, and who waits.

pub(in crate::backend::cuda) mod folder;
mod torture;

use self::folder::{Folder, LIMIT};
use super::sweep::size;
use super::{Claim, CodeCounts, CodeStore, Look, entry};
use crate::backend::cuda::nvrtc::Cubin;
use crate::util::Hash128;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

const LOG: &str = "ptxas info    : 0 bytes stack frame, 0 bytes spill stores, 4 bytes spill loads\n\
                   ptxas info    : Used 39 registers\n";

fn key(n: u128) -> Hash128 {
    Hash128(n)
}

fn cubin(n: usize) -> Cubin {
    Cubin::new((0..n).map(|i| (i * 7 % 256) as u8).collect(), LOG.into())
}

#[track_caller]
fn absent(store: &CodeStore, key: Hash128) -> Claim<'_> {
    match store.look(key) {
        Look::Absent(claim) => claim,
        Look::Found(_) => panic!("{key} is there"),
    }
}

#[track_caller]
fn check_found(store: &CodeStore, key: Hash128, wanted: &Cubin) {
    match store.look(key) {
        Look::Found(cubin) => assert_eq!(cubin, *wanted),
        Look::Absent(_) => panic!("{key} is not there: {:?}", store.error()),
    }
}

#[track_caller]
fn check_counts(store: &CodeStore, hits: u64, misses: u64, waits: u64, damaged: u64) {
    let wanted = CodeCounts { hits, misses, waits, damaged, ..CodeCounts::default() };
    assert_eq!(store.counts(), wanted, "{:?}", store.error());
}

#[test]
fn what_is_stored_is_found_by_everybody_and_a_claim_that_is_dropped_leaves_nothing() {
    let folder = Folder::new("found");
    let (one, other) = (folder.store(), folder.store());
    drop(absent(&one, key(1)));
    absent(&one, key(1)).store(&cubin(5000));
    check_found(&one, key(1), &cubin(5000));
    check_found(&other, key(1), &cubin(5000));
    assert_eq!(cubin(1).resources.map(|figures| figures.registers), Some(39));
    absent(&other, key(2)).store(&Cubin::new(Vec::new(), String::new()));
    check_found(&one, key(2), &Cubin::new(Vec::new(), String::new()));
    check_counts(&one, 2, 2, 0, 0);
    check_counts(&other, 1, 1, 0, 0);
    assert_eq!(folder.files(), [format!("{}.code", key(1)), format!("{}.code", key(2)), "sweep.lock".into()]);
}

/// The store finds this in the place of an entry: it counts as damaged, and is replaced.
#[track_caller]
fn check_damaged(folder: &Folder, bytes: &[u8], what: &str) {
    let store = folder.store();
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(folder.entry(key(1)), bytes).expect("writes");
    let Look::Absent(claim) = store.look(key(1)) else { panic!("{what} is taken for an entry") };
    claim.store(&cubin(64));
    check_counts(&store, 0, 1, 0, 1);
    check_found(&store, key(1), &cubin(64));
}

#[test]
fn damage_at_any_byte_is_found_and_mended() {
    let folder = Folder::new("damage");
    let good = entry::encode(key(1), &cubin(64));
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        check_damaged(&folder, &bytes, &format!("byte {at} changed"));
        check_damaged(&folder, &good[..at], &format!("a cut behind byte {at}"));
    }
    check_damaged(&folder, &[good.as_slice(), b"x"].concat(), "a byte more");
    check_damaged(&folder, &entry::encode(key(2), &cubin(64)), "another key's entry");
    check_damaged(&folder, b"#!/bin/sh\n", "another program's file");
}

#[test]
fn what_is_compiled_anew_replaces_what_differs() {
    let folder = Folder::new("renew");
    let store = folder.store();
    for (there, changed) in [(cubin(10), 0), (cubin(10), 0), (cubin(11), 1), (Cubin::new(vec![1], String::new()), 2)] {
        store.renew(key(1), &there);
        assert_eq!(store.counts().changed, changed);
        check_found(&store, key(1), &there);
    }
    std::fs::write(folder.entry(key(1)), "nothing").expect("writes");
    store.renew(key(1), &cubin(10));
    let counts = CodeCounts { hits: 4, misses: 5, damaged: 1, changed: 2, ..CodeCounts::default() };
    assert_eq!(store.counts(), counts);
}

#[test]
fn any_bytes_are_read_without_panic() {
    crate::property::property(|u| {
        let mut bytes: Vec<u8> = u.arbitrary()?;
        assert_eq!(entry::decode(key(3), &bytes), None);
        let mut good = entry::encode(key(3), &cubin(16));
        good.truncate(32);
        good.append(&mut bytes);
        assert_eq!(entry::decode(key(3), &good), None);
        Ok(())
    })
    .cases(1000);
}

#[test]
fn a_pipe_or_a_folder_in_the_place_of_an_entry_blocks_nobody() {
    let folder = Folder::new("pipe");
    let store = folder.store();
    std::fs::create_dir_all(folder.entry(key(1))).expect("a folder");
    absent(&store, key(1)).store(&cubin(64));
    assert_eq!((store.counts().damaged, store.counts().unstored), (1, 1));
    assert!(store.error().is_some_and(|why| why.contains("directory")), "{:?}", store.error());
    let made = Command::new("mkfifo").arg(folder.entry(key(2))).status();
    if made.is_ok_and(|status| status.success()) {
        absent(&store, key(2)).store(&cubin(64));
        check_found(&store, key(2), &cubin(64));
    }
    // What was written for the folder is gone, and so are the locks.
    let left = folder.files().into_iter().filter(|name| name.ends_with("tmp") || name.contains(&key(1).to_string()));
    assert_eq!(left.collect::<Vec<_>>(), [format!("{}.code", key(1))]);
}

#[test]
fn threads_that_want_one_key_compile_it_once() {
    let folder = Folder::new("threads");
    let store = folder.store();
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| match store.look(key(9)) {
                Look::Found(found) => assert_eq!(found, cubin(100)),
                Look::Absent(claim) => {
                    std::thread::sleep(Duration::from_millis(30));
                    claim.store(&cubin(100));
                }
            });
        }
    });
    let counts = store.counts();
    assert_eq!((counts.hits, counts.misses), (7, 1));
}

#[test]
fn a_holder_that_does_not_end_is_not_waited_for_without_end() {
    let folder = Folder::new("patience");
    let mut store = folder.store();
    let other = folder.store();
    let held = absent(&other, key(1));
    store.patience_ms = 30;
    absent(&store, key(1)).store(&cubin(10));
    assert_eq!((store.counts().waits, store.counts().misses), (1, 1));
    // The first one comes late, with the same.
    held.store(&cubin(10));
    check_found(&store, key(1), &cubin(10));
}

/// Set for this test's own binary when it is to play another process.
const ROLE: &str = "CODE_STORE_ROLE";
const PLACE: &str = "CODE_STORE_PLACE";

/// Another process: this binary, which runs [`other_process`] alone.
fn spawn(folder: &Path, role: &str, user: Option<u32>) -> Child {
    let mut command = Command::new(std::env::current_exe().expect("a binary"));
    command.args(["--exact", "backend::cuda::code_store::tests::other_process", "--nocapture", "--test-threads=1"]);
    command.env(ROLE, role).env(PLACE, folder).stdin(Stdio::piped()).stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user);
    }
    command.spawn().expect("starts")
}

/// Waits until the other process says a word.
fn hear(child: &mut Child, word: &str) {
    let out = BufReader::new(child.stdout.as_mut().expect("a pipe"));
    let found = out.lines().map_while(Result::ok).any(|line| line.ends_with(word));
    assert!(found, "the other process ended without `{word}`");
}

#[test]
fn other_process() {
    let (Ok(role), Some(place)) = (std::env::var(ROLE), std::env::var_os(PLACE)) else { return };
    if role.starts_with("torture") {
        return torture::process(&role, place.into());
    }
    let store = CodeStore::new(place, LIMIT);
    let say = |word: &str| {
        println!("\n{word}");
        std::io::stdout().flush().expect("flushes");
    };
    match role.as_str() {
        "holds" => {
            let claim = absent(&store, key(1));
            say("held");
            std::io::stdin().lock().read_line(&mut String::new()).expect("reads");
            std::thread::sleep(Duration::from_millis(100));
            claim.store(&cubin(3000));
            say("stored");
        }
        _ => {
            check_found(&store, key(1), &cubin(64));
            absent(&store, key(2)).store(&cubin(64));
            assert_eq!((store.counts().hits, store.counts().unstored), (1, 1));
            assert!(store.error().is_some_and(|why| why.contains("denied")), "{:?}", store.error());
            say("read");
        }
    }
}

#[test]
fn one_process_compiles_and_the_other_waits_for_it() {
    let folder = Folder::new("two");
    let mut child = spawn(&folder, "holds", None);
    hear(&mut child, "held");
    let store = folder.store();
    child.stdin.take().expect("a pipe").write_all(b"go\n").expect("writes");
    check_found(&store, key(1), &cubin(3000));
    check_counts(&store, 1, 0, 1, 0);
    hear(&mut child, "stored");
    assert!(child.wait().expect("ends").success());
}

#[test]
fn a_killed_process_gives_its_key_free() {
    let folder = Folder::new("killed");
    let mut child = spawn(&folder, "holds", None);
    hear(&mut child, "held");
    let store = folder.store();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| absent(&store, key(1)).store(&cubin(64)));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!waiting.is_finished());
        child.kill().expect("kills");
        waiting.join().expect("goes on");
    });
    child.wait().expect("ends");
    check_counts(&store, 0, 1, 1, 0);
    check_found(&store, key(1), &cubin(64));
    assert_eq!(folder.files(), [format!("{}.code", key(1)), "sweep.lock".into()]);
}

#[test]
fn a_folder_that_cannot_be_made_costs_the_sharing_only() {
    let folder = Folder::new("unwritable");
    std::fs::write(&folder, "a file").expect("writes");
    let store = CodeStore::new(folder.join("below"), LIMIT);
    for n in 0..3 {
        absent(&store, key(n)).store(&cubin(10));
    }
    assert_eq!((store.counts().misses, store.counts().unstored, store.counts().hits), (3, 3, 0));
    assert!(store.error().is_some_and(|why| why.contains("below")), "{:?}", store.error());
}

#[test]
fn a_folder_that_is_only_readable_is_read() {
    use std::os::unix::fs::PermissionsExt;
    // Rules of access do not bind root: another user plays the process, where that can be.
    let folder = Folder::new("readable");
    absent(&folder.store(), key(1)).store(&cubin(64));
    let allowed = |mode| std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).expect("changes");
    allowed(0o555);
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|meta| std::os::unix::fs::MetadataExt::uid(&meta) == 0);
    let exe = std::env::current_exe().expect("a binary");
    let plain = |path: &Path| path.metadata().is_ok_and(|meta| meta.permissions().mode() & 0o005 == 0o005);
    if is_root && !exe.ancestors().all(plain) {
        println!("not tried: another user cannot run {}", exe.display());
    } else {
        let mut child = spawn(&folder, "reads", is_root.then_some(65534));
        hear(&mut child, "read");
        assert!(child.wait().expect("ends").success());
    }
    allowed(0o755);
}

fn aged(path: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    let times = std::fs::FileTimes::new().set_modified(then).set_accessed(then);
    std::fs::File::options().write(true).open(path).expect("opens").set_times(times).expect("ages");
}

#[test]
fn the_oldest_go_and_only_ours() {
    let folder = Folder::new("size");
    let (bytes, count) = (entry::encode(key(0), &cubin(1000)).len() as u64, 8);
    for n in 0..count {
        absent(&folder.store(), key(n)).store(&cubin(1000));
        aged(&folder.entry(key(n)), 1000 - n as u64);
    }
    let foreign = ["notes.txt".to_string(), "00.code".into(), format!("{}.code.bak", key(3))];
    let stale = [format!("{}.77-1.tmp", key(1)), format!("{}.lock", key(2))];
    let fresh = [format!("{}.78-1.tmp", key(1)), format!("{}.lock", key(4))];
    for name in foreign.iter().chain(&stale).chain(&fresh) {
        std::fs::write(folder.join(name), vec![0; 3000]).expect("writes");
    }
    stale.iter().for_each(|name| aged(&folder.join(name), 7200));
    // The oldest one was read a moment ago.
    std::fs::File::options()
        .write(true)
        .open(folder.entry(key(0)))
        .and_then(|file| file.set_times(std::fs::FileTimes::new().set_accessed(SystemTime::now())))
        .expect("is read");
    let store = CodeStore::new(&*folder, 5 * bytes);
    absent(&store, key(100)).store(&cubin(1000));
    assert!(size(&folder) <= 5 * bytes);
    assert_eq!(store.counts().evicted, 5);
    let there: Vec<u128> = (0..count).chain([100]).filter(|n| folder.entry(key(*n)).exists()).collect();
    assert_eq!(there, [0, 6, 7, 100]);
    let left = folder.files();
    assert!(foreign.iter().chain(&fresh).all(|name| left.contains(name)), "{left:?}");
    assert!(!stale.iter().any(|name| left.contains(name)), "{left:?}");
    // Nothing goes as long as there is room.
    absent(&store, key(101)).store(&cubin(10));
    assert_eq!(store.counts().evicted, 5);
}

#[test]
fn the_size_is_looked_at_again_when_much_was_written() {
    let folder = Folder::new("grows");
    let store = CodeStore::new(&*folder, 20_000);
    for n in 0..100 {
        absent(&store, key(n)).store(&cubin(1000));
    }
    assert!(size(&folder) <= 20_000 + 20_000 / 16 + 1500, "{}", size(&folder));
    assert!(store.counts().evicted > 70, "{:?}", store.counts());
}
