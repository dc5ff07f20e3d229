//! Core dumps of a GPU, which the CUDA driver writes when a kernel faults, or
//! when it is asked to while a kernel hangs. `cuda-gdb` reads them:
//! `target cudacore FILE`.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Time to write a dump of a hanging kernel.
const PATIENCE: Duration = Duration::from_secs(10);
/// A file that has not grown for so long is complete.
const QUIET: Duration = Duration::from_millis(500);
/// Folder of dumps in a worker's own one.
const FOLDER: &str = "gpu-core";
const TRIGGER: &str = "trigger";

/// What a dump holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CoreDump {
    #[default]
    Off,
    /// Registers, program counters and the state of warps, without memory.
    Light,
    /// All memory of the device too.
    Full,
}

impl CoreDump {
    /// The variables that arm the driver of a worker whose folder this is, and
    /// the folder for its dumps. The driver ends the process after a dump. It can
    /// be told not to (`skip_abort`), but then a call that waits for the broken
    /// kernel reports success, as driver 580 showed: a crash would pass.
    pub(crate) fn env(self, home: &Path) -> std::io::Result<Vec<(&'static str, String)>> {
        let flags = match self {
            CoreDump::Off => return Ok(Vec::new()),
            CoreDump::Light => {
                Some("skip_nonrelocated_elf_images,skip_global_memory,skip_shared_memory,skip_local_memory")
            }
            CoreDump::Full => None,
        };
        let folder = std::path::absolute(home.join(FOLDER))?;
        std::fs::create_dir_all(&folder)?;
        let file = |name: &str| folder.join(name).to_string_lossy().into_owned();
        let flags = flags.map(|flags| ("CUDA_COREDUMP_GENERATION_FLAGS", flags.to_string()));
        let variables = [
            ("CUDA_ENABLE_COREDUMP_ON_EXCEPTION", "1".into()),
            ("CUDA_ENABLE_USER_TRIGGERED_COREDUMP", "1".into()),
            ("CUDA_COREDUMP_FILE", file("core.%p.%t.nvcudmp")),
            ("CUDA_COREDUMP_PIPE", file(TRIGGER)),
        ];
        Ok(variables.into_iter().chain(flags).collect())
    }
}

/// The name of the dump that the driver wrote when a kernel of the worker faulted.
pub(crate) fn dump(home: &Path) -> Option<String> {
    let written = |path: &PathBuf| path.metadata().is_ok_and(|meta| meta.len() > 0);
    let file = collect(home).into_iter().find(written)?;
    Some(file.file_name()?.to_string_lossy().into_owned())
}

/// The dumps of a worker.
pub(crate) fn collect(home: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(home.join(FOLDER)) else { return Vec::new() };
    let entries = entries.filter_map(Result::ok);
    let mut files: Vec<PathBuf> =
        entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())).map(|entry| entry.path()).collect();
    files.sort();
    files
}

/// Asks the driver of a worker for a dump and waits for it. `None` where nobody
/// listens, which is so without CUDA and where dumps are off.
pub(crate) fn poke(home: &Path) -> Option<Result<PathBuf, String>> {
    let before = collect(home);
    // Without a reader this does not wait, but fails.
    let no_wait = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let opened = std::fs::File::options().write(true).custom_flags(no_wait).open(home.join(FOLDER).join(TRIGGER));
    opened.ok()?.write_all(b"1").ok()?;
    let deadline = Instant::now() + PATIENCE;
    let mut last = (0, Instant::now());
    while Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
        let Some(file) = collect(home).into_iter().find(|file| !before.contains(file)) else { continue };
        let size = std::fs::metadata(&file).map_or(0, |meta| meta.len());
        if size != last.0 {
            last = (size, Instant::now());
        } else if size > 0 && last.1.elapsed() >= QUIET {
            return Some(Ok(file));
        }
    }
    Some(Err(format!("the driver wrote no complete dump within {} s", PATIENCE.as_secs())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_dump_is_asked_for_and_found() {
        let home = Scratch::new("gpu-core");
        assert_eq!(CoreDump::Off.env(&home).expect("none"), vec![]);
        assert!(poke(&home).is_none(), "nothing is armed");
        let env = CoreDump::Light.env(&home).expect("variables");
        let get = |key: &str| env.iter().find(|(name, _)| *name == key).expect("set").1.clone();
        // With it a broken kernel would pass.
        assert!(!get("CUDA_COREDUMP_GENERATION_FLAGS").contains("skip_abort"));
        assert_eq!(dump(&home), None);
        let pipe = get("CUDA_COREDUMP_PIPE");
        rustix::fs::mknodat(rustix::fs::CWD, &pipe, rustix::fs::FileType::Fifo, 0o600.into(), 0).expect("a pipe");
        assert!(poke(&home).is_none(), "nobody listens");
        // What the driver does: reads the pipe, then writes the dump bit by bit.
        let written = get("CUDA_COREDUMP_FILE").replace("%p", "1").replace("%t", "2");
        let driver = std::thread::spawn(move || {
            let mut pipe = std::fs::File::options().read(true).write(true).open(pipe).expect("opens");
            std::io::Read::read_exact(&mut pipe, &mut [0]).expect("is asked");
            let mut file = std::fs::File::create(written).expect("a dump");
            for _ in 0..3 {
                file.write_all(b"part").expect("writes");
                std::thread::sleep(Duration::from_millis(100));
            }
        });
        let asked = Instant::now();
        let dumped = loop {
            if let Some(dumped) = poke(&home) {
                break dumped.expect("a dump");
            }
            assert!(asked.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(5));
        };
        driver.join().expect("ends");
        assert_eq!(std::fs::read(&dumped).expect("reads").len(), 12);
        assert_eq!(dump(&home).as_deref(), dumped.file_name().and_then(|name| name.to_str()));
        assert_eq!(collect(&home), [dumped]);
    }
}
