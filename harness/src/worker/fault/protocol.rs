//! Faults on the socket between worker and dispatcher.

use super::host::doze;
use super::table::{FaultClass, FaultKind, Scene};
use crate::frame::send;
use crate::outcome::Outcome;
use crate::proto::{FromWorker, Unprepared};
use std::io::Write;
use std::os::fd::AsRawFd;

pub(super) const CLASSES: &[FaultClass] = &[
    fatal("garbage", "writes what is no frame", |scene, _| say(scene, b"not a frame at all")),
    fatal("frame-huge", "claims a frame of 4 GiB", |scene, _| say(scene, &[0xff; 64])),
    fatal("frame-crc", "sends a frame with a wrong checksum", |scene, _| say(scene, b"\x02\0\0\0\0\0\0\0{}")),
    fatal("frame-unknown", "sends a whole frame that is no message", |scene, _| {
        let _ = send(scene.socket, &serde_json::json!({ "surprise": [1, 2, 3] }));
        doze()
    }),
    fatal("frame-cut", "ends its stream in the middle of a frame", |scene, _| {
        let mut socket = scene.socket;
        let _ = socket.write_all(b"\x40\0\0\0\x01\x02\x03\x04{\"end\":{\"case_id\":");
        let _ = socket.shutdown(std::net::Shutdown::Both);
        doze()
    }),
    fatal("close", "shuts its socket and lives on", |scene, _| {
        let _ = scene.socket.shutdown(std::net::Shutdown::Both);
        doze()
    }),
    fatal("close-fd", "closes the descriptor of its socket and lives on", |scene, _| {
        crate::os::fault::close(scene.socket.as_raw_fd());
        doze()
    }),
    fatal("twice", "begins another case inside its own", |scene, _| {
        let begin = FromWorker::Begin { case_id: "another case".into(), attempt: 0 };
        let _ = send(scene.socket, &begin);
        doze()
    }),
    fatal("end-other", "ends a case that was never begun", |scene, _| {
        let _ = send(scene.socket, &end("__fault.pass", 0));
        doze()
    }),
    FaultClass::returns("end-twice", FaultKind::Protocol, "pass", "ends its own case twice", |scene, _| {
        end_now(scene);
        Outcome::pass()
    })
    .told("crash.teardown"),
];

const fn fatal(name: &'static str, about: &'static str, commit: fn(&Scene<'_>, &str) -> Outcome) -> FaultClass {
    FaultClass::fatal(name, FaultKind::Protocol, "crash.protocol", about, commit)
}

fn say(scene: &Scene<'_>, bytes: &[u8]) -> Outcome {
    let mut socket = scene.socket;
    let _ = socket.write_all(bytes);
    doze()
}

/// Ends the case that is running, ahead of the worker's own message.
pub(super) fn end_now(scene: &Scene<'_>) {
    let _ = send(scene.socket, &end(&scene.facts.case_id, scene.facts.attempt));
}

fn end(case_id: &str, attempt: u32) -> FromWorker {
    let outcome = Box::new(Outcome::pass());
    FromWorker::End {
        case_id: case_id.into(),
        attempt,
        outcome,
        tainted: false,
        code: None,
        unprepared: Unprepared::default(),
    }
}
