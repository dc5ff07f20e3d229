//! The tests of the harness as a user drives it, in one binary: each file would
//! otherwise link all of the engine once more. Only [`cases`](../cases.rs) stays
//! apart, since every case is a test of its own there, and it has no harness of
//! the standard library.
//!
//! They may share a process: each drives the binary in a process and a folder of
//! its own, and none changes this process (its environment, its handlers of
//! signals, its children's reaper). A test that has to do so gets a binary.

mod again;
mod broken_files;
mod case_files;
mod code_cache;
mod codegen;
mod definitions;
mod devices;
#[allow(dead_code, reason = "of the engine's tests, which count draws otherwise")]
#[path = "../../engine/tests/property/draws.rs"]
mod draws;
mod durability;
mod evidence;
mod explain;
mod faults;
mod flakes;
mod fmt;
mod gates;
mod guards;
mod host_text;
mod hostile;
mod launcher;
mod layers;
mod manual;
mod mutation;
mod nightly;
mod order;
mod place;
mod results;
mod schedules;
mod select;
mod shards;
mod stores;
mod timings;
mod verified;
