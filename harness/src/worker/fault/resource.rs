//! Faults of memory, descriptors, output and time.

use super::table::{Class, Kind};
use crate::verdict::Outcome;
use std::io::Write;

pub(super) const CLASSES: &[Class] =
    &[Class::returns("noisy", Kind::Resource, "pass", "writes 4 MiB to standard output", |_, _| {
        let line = [b'x'; 1023];
        let mut out = std::io::stdout().lock();
        for _ in 0..4096 {
            let _ = out.write_all(&line).and_then(|()| out.write_all(b"\n"));
        }
        Outcome::pass()
    })];
