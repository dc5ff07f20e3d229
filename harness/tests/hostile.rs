//! Case folders that mean harm: every one ends in bounded time and memory with
//! a code, a place and a way out, and prints nothing that a terminal obeys.

use crate::place;
use std::fmt::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// Address space of the harness in these tests. Far less than what the folders
/// ask for, and enough for a build without optimisation.
const MEMORY_KIB: u64 = 1_500_000;
/// Far more than a loaded machine needs, far less than what is asked for.
const LIMIT: Duration = Duration::from_secs(60);

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("hostile-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&dir);
        std::fs::create_dir_all(dir.join("cases")).expect("a folder");
        Self(dir)
    }

    fn with(name: &str, text: &str) -> Self {
        let folder = Self::new(name);
        folder.file("a.fuse", text);
        folder
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join("cases").join(name)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::create_dir_all(self.path(name).parent().expect("has one")).expect("a folder");
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn run(&self, args: &[&str]) -> (i32, String) {
        let started = Instant::now();
        let harness = env!("CARGO_BIN_EXE_harness");
        let output = place::unswayed(&mut Command::new("sh"))
            .args(["-c", &format!("ulimit -v {MEMORY_KIB}; exec \"$0\" \"$@\""), harness])
            .args(args)
            .current_dir(&self.0)
            .output()
            .expect("runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8") + &String::from_utf8(output.stderr).expect("UTF-8");
        assert!(started.elapsed() < LIMIT, "{:?}", started.elapsed());
        (output.status.code().unwrap_or(-1), text)
    }

    /// `list` refuses the folder, with these parts, in bounded text.
    #[track_caller]
    fn check_refused(&self, parts: &[&str]) {
        let (code, text) = self.run(&["list"]);
        assert_eq!(code, 96, "{}", start(&text));
        for part in parts {
            assert!(text.contains(part), "{part:?} is missing in:\n{}", start(&text));
        }
        check_tame(&text);
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start(text: &str) -> &str {
    &text[..text.char_indices().nth(2000).map_or(text.len(), |(at, _)| at)]
}

/// Bounded, no panic, no control character but line breaks.
#[track_caller]
fn check_tame(text: &str) {
    assert!(text.len() < 100_000, "{} bytes:\n{}", text.len(), start(text));
    assert!(!text.contains("panicked at"), "{}", start(text));
    assert!(text.chars().all(|c| c == '\n' || !c.is_control()), "{:?}", start(text));
}

/// A file with this front matter and body.
fn file(front: &str, body: &str) -> String {
    format!("---\nversion = 1\nsuite = \"HostileTest\"\nabout = \"why\"\n{front}---\n{body}")
}

/// A fusion whose input has this size.
fn fusion(size: &str) -> String {
    format!("fusion @A(%x: f32[?]) {{\n  return %x\n}}\n; inputs: x = normal[{size}]\n")
}

fn numbers(count: usize) -> String {
    (0..count).map(|n| n.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn axes_that_multiply_are_counted_before_they_are_expanded() {
    let axes: String = ["a", "b", "c"].map(|name| format!("{name} = [{}]\n", numbers(100))).concat();
    let folder = Folder::with("million", &file(&format!("[axes]\n{axes}"), &fusion("$a + $b + $c")));
    folder.check_refused(&["cases/a.fuse:10:1: error[E0403]", "more than 4096 ids", "split the file or its axes"]);
    let axes: String = (0..60).map(|i| format!("a{i} = [{}]\n", numbers(60))).collect();
    let all = (0..60).map(|i| format!("$a{i}")).collect::<Vec<_>>().join(" + ");
    let folder = Folder::with("overflow", &file(&format!("[axes]\n{axes}"), &fusion(&all)));
    folder.check_refused(&["E0403", "more than 4096 ids"]);
    let folder = Folder::with("long", &file(&format!("[axes]\na = [{}]\n", numbers(140_000)), &fusion("$a")));
    folder.check_refused(&["cases/a.fuse:6:1: error[E0403]: axis `a` has 140000 values"]);
    let axes: String = (0..50_000).map(|i| format!("a{i}=[1]\n")).collect();
    let folder = Folder::with("axes", &file(&format!("[axes]\n{axes}"), &fusion("1")));
    folder.check_refused(&["cases/a.fuse:5:1: error[E0403]: the file has 50000 axes, more than 64"]);
    // Each id small, all of them with a big text.
    let front = format!("[axes]\n_s = [\"{}\"]\nn = [{}]\n", "x".repeat(200_000), numbers(4000));
    let folder = Folder::with("bytes", &file(&front, &format!("{};; $_s\n", fusion("$n"))));
    folder.check_refused(&["E0403", "more than 67108864 bytes of text together"]);
}

/// 250 files of 4,096 ids each ask for a million: reading stops at 100,000.
#[test]
fn a_million_ids_of_many_files_stop_at_the_limit() {
    let folder = Folder::new("mass");
    for i in 0..250 {
        let front = format!("[axes]\na{i} = [{}]\nb = [{}]\n", numbers(64), numbers(64));
        folder.file(&format!("f{i:03}.fuse"), &file(&front, &fusion(&format!("$a{i} + $b"))));
    }
    folder.check_refused(&["cases/f024.fuse: error[E0403]", "more than 100000 ids", "--cases PATH"]);
}

#[test]
fn a_flood_of_mistakes_is_cut() {
    let folder = Folder::with("flood", &file("", &format!("{}{}", fusion("1"), "; frob: x\n".repeat(60_000))));
    folder.check_refused(&["cases/a.fuse:10:3: error[E0402]", "the first 100 of at least 60000", "101 errors"]);
    let folder = Folder::new("floods");
    for i in 0..300 {
        folder.file(&format!("f{i}.fuse"), &"; frob: x\n".repeat(10));
    }
    folder.check_refused(&["... 100 more: 300 errors"]);
}

/// Loops over all pairs, or worse, would show here.
#[test]
fn long_lists_stay_linear() {
    let hidden: String = (0..9000).map(|i| fusion("1").replace("@A", &format!("@_H{i}"))).collect();
    Folder::with("fusions", &file("", &hidden)).check_refused(&["E0403", "more than 4096 fusions"]);
    let twin = |i: usize| {
        let body = fusion("1");
        format!(
            "{}{}; same-as: @_H{i}\n",
            body.replace("@A", &format!("@_H{i}")),
            body.replace("@A", &format!("@A{i}"))
        )
    };
    let folder = Folder::with("twins", &file("", &(0..2000).map(twin).collect::<String>()));
    assert_eq!(folder.run(&["list"]).1.lines().count(), 2000);
    let inputs = (0..40_000).map(|i| format!("x{i} = normal[1]")).collect::<Vec<_>>().join(", ");
    let body = format!("fusion @A(%x: f32[?]) {{\n  return %x\n}}\n; inputs: {inputs}\n");
    Folder::with("inputs", &file("", &body)).check_refused(&["E0403", "more than 4096 inputs"]);
}

#[test]
fn nesting_is_bounded() {
    let deep = 300_000;
    let front = format!("x = {}{}\n", "[".repeat(deep), "]".repeat(deep));
    Folder::with("toml", &file(&front, &fusion("1"))).check_refused(&["cases/a.fuse:5:", "recurs"]);
    let expression = format!("{}1{}", "(".repeat(deep), ")".repeat(deep));
    Folder::with("sizes", &file("", &fusion(&expression))).check_refused(&["E0402", "nests too deep"]);
    Folder::with("signs", &file("", &fusion(&format!("{}1", "-".repeat(deep))))).check_refused(&["nests too deep"]);
    let folder = Folder::new("folders");
    folder.file(&format!("{}a.fuse", "d/".repeat(18)), &file("", &fusion("1")));
    folder.check_refused(&["error[E0403]: folders nest deeper than 16", "flatten"]);
    // A fusion's text is read by the worker, which must survive it as well.
    let body = format!("fusion @A(%x: f32[?]) {{\n  %0 = add %x, {}\n  return %0\n}}\n", "(".repeat(deep));
    let folder = Folder::with("fusion", &file("", &body));
    let (code, text) = folder.run(&["run", "--ref", "--retries", "0", "--format", "plain"]);
    assert_eq!(code, 100, "{}", start(&text));
    assert!(text.contains("fail.refused") && text.contains("E0101"), "{}", start(&text));
    check_tame(&text);
}

#[test]
fn huge_numbers_are_refused_where_they_stand() {
    let front = "[require]\narch = 99999999999\nmemory = \"1e99GiB\"\n[limits]\ntimeout = \"1e400s\"\n";
    let folder = Folder::with("front", &file(front, &fusion("99999999999999999999")));
    folder.check_refused(&[
        "a.fuse:6:8: error[E0401]: `arch = 99999999999`",
        "a.fuse:7:10",
        "a.fuse:9:11",
        "does not fit 64 bits",
    ]);
    for (name, size, part) in [
        ("product", "9223372036854775807 * 2", "overflows 64 bits"),
        ("elements", "4294967297", "more than 4294967296 elements"),
        ("negative", "-9223372036854775808", "error[E0402]"),
    ] {
        Folder::with(name, &file("", &fusion(size))).check_refused(&["cases/a.fuse:9:", part]);
    }
}

#[test]
fn odd_files_are_neither_read_nor_waited_for() {
    let folder = Folder::new("files");
    folder.file("good.fuse", &file("", &fusion("1")));
    assert_eq!(folder.run(&["list"]), (0, "HostileTest.A\n".into()));
    folder.file("README.md", "not a case");
    std::fs::File::create(folder.path("sparse.fuse")).and_then(|file| file.set_len(4 << 30)).expect("a sparse file");
    let fifo =
        Command::new("mkfifo").args([folder.path("pipe.fuse"), folder.path("pipe.py"), folder.path("pipe")]).status();
    assert!(fifo.expect("mkfifo").success());
    symlink("/dev/zero", folder.path("zero.fuse")).expect("a link");
    symlink("/etc", folder.path("etc")).expect("a link");
    symlink("..", folder.path("up")).expect("a link");
    symlink("loop.fuse", folder.path("loop.fuse")).expect("a link");
    std::fs::create_dir(folder.path("sub")).expect("a folder");
    symlink("../../cases", folder.path("sub/again")).expect("a link");
    symlink("nowhere", folder.path("sub/gone.fuse")).expect("a link");
    symlink("../../../outside.fuse", folder.path("sub/out.fuse")).expect("a link");
    std::fs::write(folder.0.parent().expect("has one").join("outside.fuse"), "").expect("a file");
    std::fs::create_dir(folder.path("new\nline\u{1b}[31m")).expect("a folder");
    folder.file("bell\u{7}.fuse", &file("", &fusion("1")));
    std::fs::write(folder.path("latin.fuse"), b"---\n\xff").expect("a file");
    folder.check_refused(&[
        "cases/sparse.fuse: error[E0403]: the file has 4294967296 bytes",
        "cases/pipe.fuse: error[E0405]: not a regular file",
        "cases/pipe.py: error[E0405]: not a regular file",
        "cases/zero.fuse: error[E0405]: the file is a link that leaves the case folder",
        "cases/etc: error[E0405]: the folder is a link that leaves the case folder",
        "cases/up: error[E0405]: the folder is a link that leaves",
        "cases/loop.fuse: error[E0405]: the link leads nowhere",
        "cases/sub/gone.fuse: error[E0405]: the link leads nowhere",
        "cases/sub/out.fuse: error[E0405]",
        "cases/new\\nline\\x1b[31m: error[E0405]: the name holds control characters",
        "cases/bell\\x07.fuse: error[E0405]",
        "cases/latin.fuse: error[E0401]: the file is not UTF-8 from byte 4 on",
    ]);
    let (code, text) = folder.run(&["list", "--cases", "cases/pipe.fuse"]);
    assert_eq!(code, 96, "{text}");
    let (code, text) = folder.run(&["list", "--cases", "/dev/zero"]);
    assert_eq!(code, 96, "{text}");
}

#[test]
fn unreadable_files_and_folders_are_named() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("modes");
    folder.file("locked.fuse", &file("", &fusion("1")));
    folder.file("closed/a.fuse", &file("", &fusion("1")));
    for path in ["locked.fuse", "closed"] {
        std::fs::set_permissions(folder.path(path), std::fs::Permissions::from_mode(0o000)).expect("a mode");
    }
    // Root reads everything: there is nothing to see then.
    if std::fs::read(folder.path("locked.fuse")).is_err() {
        folder.check_refused(&[
            "cases/locked.fuse: error[E0405]: cannot open",
            "cases/closed: error[E0405]: cannot read",
        ]);
    }
    std::fs::set_permissions(folder.path("closed"), std::fs::Permissions::from_mode(0o700)).expect("a mode");
}

#[test]
fn control_characters_of_texts_are_never_printed() {
    let front = "tags = [\"a\\u001b[2J\"]\n\"k\\u001by\" = 1\n[axes]\n\"b\\u0007\" = [1]\nc = [\"\\u001b]0;x\"]\n";
    let text = file(front, &format!("{}; fr\u{1b}b: \u{1b}[31m\n", fusion("1"))).replace("why", "wh\\u001b[31my");
    let folder = Folder::with("escapes", &text);
    folder.check_refused(&[
        "control character",
        "the tag `a\\x1b[2J`",
        "unknown field `k\\x1by`",
        "cannot stand in a case id",
    ]);
    // What the engine says about a fusion's own text.
    let body = "fusion @A(%x: f32[?]) {\n  %0 = n\u{1b}[31meg %x ;; \u{1b}]0;title\u{7}\n  return %0\n}\n; inputs: x = normal[1]\n";
    let folder = Folder::with("fusion-escapes", &file("", body));
    let (code, text) = folder.run(&["run", "--ref", "--retries", "0", "--format", "plain"]);
    assert_eq!(code, 100, "{text}");
    check_tame(&text);
    let (code, text) = folder.run(&["run", "--ref", "--exact", "x\u{1b}[2Jy"]);
    assert_eq!(code, 4);
    check_tame(&text);
    for (args, code) in [
        (["list", "--filter", "a\u{1b}b"], 94),
        (["list", "-E", "\u{1b}"], 94),
        (["list", "--tag", "\u{1b}[31m"], 4),
        (["list", "--rerun", "../\u{1b}"], 2),
        (["list", "--shard", "\u{1b}"], 2),
        (["list", "--from-file", "\u{1b}"], 2),
        (["list", "--cases", "\u{1b}"], 96),
        (["list", "--\u{1b}[31m", "x"], 2),
        (["\u{1b}[31m", "-E", "all"], 2),
    ] {
        let (found, text) = folder.run(&args);
        assert_eq!(found, code, "{args:?}: {text}");
        check_tame(&text);
    }
}

/// A list of ids may be as hostile as a folder.
#[test]
fn lists_of_ids_are_bounded() {
    let folder = Folder::with("lists", &file("[axes]\nn = [1, 2]\n", &fusion("$n")));
    let list = |name: &str, text: &[u8]| std::fs::write(folder.0.join(name), text).expect("a list");
    list("good", b"# all of them\nHostileTest.A/n=1 # the first\r\n\nHostileTest.A/n=2\n");
    assert_eq!(folder.run(&["list", "--from-file", "good"]), (0, "HostileTest.A/n=1\nHostileTest.A/n=2\n".into()));
    list("latin", b"\xff\n");
    list("empty", b"# nothing\n");
    let mut unknown = String::new();
    (0..50_000).for_each(|i| writeln!(unknown, "Nobody.A/n={i}").expect("a text"));
    list("unknown", unknown.as_bytes());
    std::fs::File::create(folder.0.join("big")).and_then(|file| file.set_len(8 << 30)).expect("a sparse file");
    for (name, code, part) in [
        ("latin", 2, "not UTF-8 from byte 0"),
        ("empty", 2, "names no id"),
        ("unknown", 4, "unknown:1: there is no case `Nobody.A/n=0`, and 49999 more lines"),
        ("big", 2, "more than 33554432 bytes"),
        ("nowhere", 2, "cannot be read"),
    ] {
        let (found, text) = folder.run(&["list", "--from-file", name]);
        assert!(found == code && text.contains(part), "{name}: {found} {}", start(&text));
        check_tame(&text);
    }
}
