//! Device memory that shows what a kernel did outside of its bounds.
//!
//! A [`GuardedBuffer`] lies between two red zones of known bytes. [`check_zones`]
//! compares the zones of any number of buffers after a launch: they are gathered
//! on the device, so that one copy brings them all. What a kernel left unwritten
//! shows by the byte that outputs are filled with.
//!
//! Invariant: the address between the zones is as aligned as an allocation.

use super::device::{Device, DeviceBuffer};
use super::staging;
use crate::backend::findings;
use crate::diag::{Diagnostic, Result, code};
use std::sync::Arc;

/// Bytes of a red zone; keeps the alignment of an allocation.
const ZONE: usize = 512;
/// What red zones are filled with.
const ZONE_BYTE: u8 = 0xa5;

/// Memory between two red zones.
#[derive(Debug)]
pub struct GuardedBuffer {
    buffer: DeviceBuffer,
    bytes: usize,
}

impl GuardedBuffer {
    /// Memory filled with one byte.
    pub fn new(device: &Arc<Device>, bytes: usize, fill: u8) -> Result<Self> {
        let mut this = Self::around(device.alloc(bytes + 2 * ZONE)?, bytes)?;
        this.fill(fill)?;
        Ok(this)
    }
    /// The same for memory that is kept between calls.
    pub fn kept(device: &Arc<Device>, bytes: usize, fill: u8) -> Result<Self> {
        let mut this = Self::around(device.alloc_kept(bytes + 2 * ZONE)?, bytes)?;
        this.fill(fill)?;
        Ok(this)
    }
    /// Memory that holds these bytes.
    pub fn holding(device: &Arc<Device>, data: &[u8]) -> Result<Self> {
        let mut this = Self::around(device.alloc(data.len() + 2 * ZONE)?, data.len())?;
        this.upload(data)?;
        Ok(this)
    }
    /// Memory of so many bytes that holds these again and again.
    pub fn repeating(device: &Arc<Device>, part: &[u8], bytes: usize) -> Result<Self> {
        let mut this = Self::around(device.alloc(bytes + 2 * ZONE)?, bytes)?;
        let part = &part[..part.len().min(bytes)];
        this.upload(part)?;
        this.buffer.repeat(ZONE, part.len(), bytes)?;
        Ok(this)
    }
    fn around(mut buffer: DeviceBuffer, bytes: usize) -> Result<Self> {
        buffer.fill(0, ZONE, ZONE_BYTE)?;
        buffer.fill(ZONE + bytes, ZONE, ZONE_BYTE)?;
        Ok(Self { buffer, bytes })
    }

    /// The address of the first byte between the zones, aligned to 512.
    pub fn address(&self) -> u64 {
        self.buffer.address() + ZONE as u64
    }
    /// Bytes between the zones.
    pub fn len(&self) -> usize {
        self.bytes
    }
    /// Whether there is nothing between the zones.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }
    /// Sets every byte between the zones.
    pub fn fill(&mut self, value: u8) -> Result<()> {
        self.buffer.fill(ZONE, self.bytes, value)
    }
    /// Copies bytes in.
    pub fn upload(&mut self, data: &[u8]) -> Result<()> {
        self.check_len(data.len())?;
        self.buffer.upload(ZONE, data)
    }
    /// Copies bytes out.
    pub fn download(&self, data: &mut [u8]) -> Result<()> {
        self.check_len(data.len())?;
        self.buffer.download(ZONE, data)
    }
    /// So many bytes, from that one on.
    pub fn bytes_from(&self, start: usize, bytes: usize) -> Result<Vec<u8>> {
        self.check_len(start.saturating_add(bytes))?;
        self.buffer.bytes(ZONE + start, bytes)
    }
    /// What is between the zones after all work issued so far, once more on the device.
    pub fn copied(&self) -> Result<DeviceBuffer> {
        let mut copy = self.buffer.device().alloc(self.bytes)?;
        copy.copy_range(0, &self.buffer, ZONE, self.bytes).map(|()| copy)
    }
    // Copies must not touch the zones.
    fn check_len(&self, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(Diagnostic::bug(format!("a copy of {bytes} bytes leaves a buffer of {} bytes", self.bytes)))
    }

    /// Fails with `B0107` if a red zone was written. `name` says whose it is.
    pub fn check(&self, name: &str) -> Result<()> {
        check_zones(&[(name, self)])
    }

    /// Fails with `B0109` if the memory holds anything but `expected`.
    pub fn check_unchanged(&self, name: &str, expected: &[u8]) -> Result<()> {
        self.check_len(expected.len())?;
        self.buffer.look_at(ZONE, expected.len(), &mut |start, found| {
            let part = &expected[start..start + found.len()];
            match staging::are_equal(found, part) {
                true => Ok(()),
                false => Err(findings::input_changed(name, found, part, start)),
            }
        })
    }
}

/// Fails with `B0107` if a red zone of one of these buffers, all of one device,
/// was written: names each such buffer, the side, how many bytes and the first.
pub fn check_zones(buffers: &[(&str, &GuardedBuffer)]) -> Result<()> {
    let Some((_, first)) = buffers.first() else { return Ok(()) };
    let mut gathered = first.buffer.device().alloc(buffers.len() * 2 * ZONE)?;
    for (number, (_, guarded)) in buffers.iter().enumerate() {
        let place = number * 2 * ZONE;
        gathered.copy_range(place, &guarded.buffer, 0, ZONE)?;
        gathered.copy_range(place + ZONE, &guarded.buffer, ZONE + guarded.bytes, ZONE)?;
    }
    let mut zones = vec![0; buffers.len() * 2 * ZONE];
    gathered.download(0, &mut zones)?;
    let mut broken = Vec::new();
    for ((name, guarded), zones) in buffers.iter().zip(zones.chunks(2 * ZONE)) {
        let (before, behind) = zones.split_at(ZONE);
        broken.extend(damage(name, guarded.bytes, before, true));
        broken.extend(damage(name, guarded.bytes, behind, false));
    }
    let mut broken = broken.into_iter();
    let Some(message) = broken.next() else { return Ok(()) };
    Err(broken.fold(Diagnostic::bug_code(code::RED_ZONE, message), |error, more| error.note(more)))
}

/// What is wrong with one zone.
fn damage(name: &str, bytes: usize, zone: &[u8], before: bool) -> Option<String> {
    let first = zone.iter().position(|byte| *byte != ZONE_BYTE)?;
    let count = zone.iter().filter(|byte| **byte != ZONE_BYTE).count();
    let (side, offset) = match before {
        true => ("before the start", first as i64 - ZONE as i64),
        false => ("behind the end", (bytes + first) as i64),
    };
    Some(format!("a kernel wrote {count} bytes {side} of buffer {name} ({bytes} bytes), the first at byte {offset}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damage_names_the_side_and_the_first_byte() {
        let mut zone = [ZONE_BYTE; ZONE];
        assert_eq!(damage("y", 20, &zone, true), None);
        (zone[3], zone[9]) = (0, 1);
        let behind = damage("y", 20, &zone, false).expect("damaged");
        assert_eq!(behind, "a kernel wrote 2 bytes behind the end of buffer y (20 bytes), the first at byte 23");
        assert!(damage("y", 20, &zone, true).expect("damaged").ends_with("the first at byte -509"));
    }
}
