//! Compiled kernels that processes share, through the whole binary: `compile`
//! needs NVRTC and no GPU.

use crate::place::{Place, check};
use std::path::{Path, PathBuf};

const KERNELS: usize = 6;

/// A place with cases of so many kernels.
fn place(name: &str) -> Place {
    let place = Place::empty(name);
    let text = "---\nversion = 1\nsuite = \"CacheTest\"\nabout = \"why\"\n[axes]\ndtype = [\"f64\", \"f32\", \"f16\"]\n---\n\
                fusion @add(%x: $dtype[?]) {\n  %0 = add %x, %x\n  return %0\n}\n; inputs: x = normal[1000]\n\n\
                fusion @neg(%x: $dtype[?]) {\n  %0 = neg %x\n  return %0\n}\n; inputs: x = normal[1000]\n";
    place.file("cases/cache.fuse", text);
    let (code, text) = place.run(&["compile", "--exact", "CacheTest.add/dtype=f32"]);
    assert!(code == 0 && !text.contains("code cache"), "{text}");
    place
}

const ALL: &str = "6 kernels of 6 cases compiled for sm_90a";

#[track_caller]
fn check_compile(place: &Place, dir: &str, found: usize, more: &str) {
    let line = format!("code cache: {found} kernels found, {} compiled{more}", KERNELS - found);
    check(place, &["compile", "--code-cache", dir], 0, &[ALL, "0 failed", &line]);
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let items = std::fs::read_dir(dir).expect("a folder").map(|item| item.expect("an item").path());
    let mut entries: Vec<PathBuf> = items.filter(|path| path.extension().is_some_and(|e| e == "code")).collect();
    entries.sort();
    entries
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_what_one_run_compiled_the_next_finds() {
    let place = place("code-cache");
    check_compile(&place, "kept", 0, "\n");
    let (entries, bytes) = (entries(&place.0.join("kept")), |path: &Path| std::fs::read(path).expect("reads"));
    assert_eq!(entries.len(), KERNELS);
    let first: Vec<Vec<u8>> = entries.iter().map(|path| bytes(path)).collect();
    check_compile(&place, "kept", KERNELS, "\n");
    // Damaged, cut short, empty: compiled again, to the same.
    let mut spoilt = first[0].clone();
    let middle = spoilt.len() / 2;
    spoilt[middle] ^= 1;
    let cut = &first[1][..middle.min(first[1].len() - 1)];
    for (path, bytes) in entries.iter().zip([spoilt.as_slice(), cut, &[]]) {
        std::fs::write(path, bytes).expect("writes");
    }
    check_compile(&place, "kept", KERNELS - 3, ", 3 damaged entries replaced\n");
    assert!(entries.iter().zip(&first).all(|(path, first)| bytes(path) == *first));
    check_compile(&place, "kept", KERNELS, "\n");
    check(&place, &["compile", "--code-cache", "off"], 0, &[ALL]);
    check(&place, &["compile", "--code-cache", ""], 2, &["needs a path"]);
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_two_processes_compile_each_kernel_once() {
    let place = place("code-cache-two");
    let args = ["compile", "--code-cache", "shared"];
    let [one, other] =
        [(); 2].map(|()| place.command(&args).stdout(std::process::Stdio::piped()).spawn().expect("starts"));
    let mut compiled = 0;
    for child in [one, other] {
        let output = child.wait_with_output().expect("ends");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success() && text.contains(ALL), "{text}");
        let line = text.lines().find(|line| line.starts_with("code cache: ")).expect("a line");
        let numbers: Vec<usize> = line.split(' ').filter_map(|word| word.parse().ok()).collect();
        assert_eq!(numbers.iter().sum::<usize>(), KERNELS, "{line}");
        compiled += numbers[1];
    }
    assert_eq!(compiled, KERNELS);
    let left = std::fs::read_dir(place.0.join("shared")).expect("a folder").count();
    assert_eq!((entries(&place.0.join("shared")).len(), left), (KERNELS, KERNELS + 1));
}

#[test]
#[ignore = "needs NVRTC"]
fn needs_nvrtc_a_folder_that_cannot_be_had_costs_the_sharing_only() {
    let place = place("code-cache-none");
    place.file("taken", "a file");
    check_compile(&place, "taken/below", 0, "; 6 could not be shared: ");
}
