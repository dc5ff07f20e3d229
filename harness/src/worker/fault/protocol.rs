//! Faults on the socket between worker and dispatcher.

use super::host::doze;
use super::table::{Class, Kind};
use crate::proto::{FromWorker, send};
use std::io::Write;

pub(super) const CLASSES: &[Class] = &[
    Class::fatal("garbage", Kind::Protocol, "crash.protocol", "writes what is no frame", |scene, _| {
        let mut socket = scene.socket;
        let _ = socket.write_all(b"not a frame at all");
        doze()
    }),
    Class::fatal("close", Kind::Protocol, "crash.protocol", "shuts its socket and lives on", |scene, _| {
        let _ = scene.socket.shutdown(std::net::Shutdown::Both);
        doze()
    }),
    Class::fatal("twice", Kind::Protocol, "crash.protocol", "begins another case inside its own", |scene, _| {
        let begin = FromWorker::Begin { case_id: "another case".into(), attempt: 0 };
        let _ = send(scene.socket, &begin);
        doze()
    }),
];
