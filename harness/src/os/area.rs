//! The second shared area of a worker: raw facts of a crash and of threads that
//! were asked where they are. Written by signal handlers (`crash.rs`), which
//! may do almost nothing; read and interpreted by the dispatcher.
//!
//! A file in memory of this layout; what was never written takes no memory:
//!
//! | bytes | content |
//! |---|---|
//! | 0.. | words: magic, threads that answered, bytes of the module map |
//! | 512 n.. | slot `n`: 0 the crash, 1..=[`THREADS`] a thread that answered |
//! | [`MAPS_AT`].. | `/proc/self/maps` at the crash |
//! | [`CRASH_STACK_AT`].. | the crashing thread's stack from its stack pointer up |
//! | [`STACKS_AT`].. | the same of each thread that answered, [`STACK_LEN`] each |
//!
//! The slots are mapped and made of atomic words; stacks and maps go through
//! the descriptor, since the kernel then checks what can be read: a handler
//! that copies a broken stack must not fault itself.

use super::SharedWords;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

pub(crate) const MAGIC: u64 = 0x6661_6374_7300_0001;
pub(crate) const ANSWERS_AT: usize = 1;
pub(crate) const MAPS_LEN_AT: usize = 2;
/// Threads that can answer.
pub(crate) const THREADS: usize = 128;
pub(crate) const SLOT_WORDS: usize = 64;
pub(crate) const WORDS: usize = SLOT_WORDS * (THREADS + 2);
pub(crate) const MAPS_AT: u64 = 1 << 20;
pub(crate) const MAPS_LEN: usize = 1 << 20;
pub(crate) const CRASH_STACK_AT: u64 = 2 << 20;
pub(crate) const CRASH_STACK_LEN: usize = 16 << 20;
pub(crate) const STACKS_AT: u64 = 32 << 20;
pub(crate) const STACK_LEN: usize = 256 << 10;

/// Words of a slot.
pub(crate) const STATE: usize = 0;
/// Signal in the low half, `si_code` in the high one.
pub(crate) const SIGNAL: usize = 1;
pub(crate) const FAULT: usize = 2;
pub(crate) const THREAD: usize = 3;
pub(crate) const NAME: usize = 4;
pub(crate) const STACK_BASE: usize = 6;
pub(crate) const STACK_BYTES: usize = 7;
pub(crate) const PC: usize = 8;
/// Registers by their DWARF numbers.
pub(crate) const REGISTERS: usize = 9;
pub(crate) const REGISTER_COUNT: usize = 33;
pub(crate) const WRITING: u64 = 1;
pub(crate) const WRITTEN: u64 = 2;

/// The slot of word offset `slot`: the first one lies behind the head.
pub(crate) const fn slot_at(slot: usize) -> usize {
    SLOT_WORDS * (slot + 1)
}

/// What a handler wrote of one thread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Raw {
    pub(crate) signal: i32,
    pub(crate) si_code: i32,
    pub(crate) fault_addr: u64,
    pub(crate) thread: u32,
    pub(crate) name: String,
    pub(crate) pc: u64,
    pub(crate) registers: Vec<u64>,
    /// Address of the first byte of `stack`.
    pub(crate) stack_base: u64,
    pub(crate) stack: Vec<u8>,
    /// False if the process ended before the handler was through.
    pub(crate) complete: bool,
}

impl Raw {
    /// Whether the thread ran out of stack: the address lies at its stack pointer.
    pub(crate) fn is_overflow(&self) -> bool {
        const NEAR: std::ops::Range<i64> = -(64 << 10)..256;
        let stack_pointer = self.registers.get(STACK_REGISTER).copied().unwrap_or(0);
        [7, 11].contains(&self.signal)
            && self.has_address()
            && NEAR.contains(&(self.fault_addr.wrapping_sub(stack_pointer) as i64))
    }

    /// What the code of the signal says, for people; empty if nothing.
    pub(crate) fn reason(&self) -> String {
        match (self.signal, self.si_code) {
            (_, 0) => "sent by a process".into(),
            (11, 1) => format!("{:#x} is not mapped", self.fault_addr),
            (11, 2) => format!("{:#x} must not be accessed so", self.fault_addr),
            (11, 0x80) => "an address that no memory can have".into(),
            (7, _) if self.si_code > 0 => format!("{:#x} has no memory behind it", self.fault_addr),
            (4, code) if code > 0 => format!("the instruction at {:#x}", self.fault_addr),
            _ => String::new(),
        }
    }

    /// Whether the signal is about an address: one that the kernel raised for
    /// an access or an instruction, not one that was sent.
    pub(crate) fn has_address(&self) -> bool {
        self.si_code > 0 && self.si_code != 0x80 && [4, 5, 7, 8, 11].contains(&self.signal)
    }
}

#[cfg(target_arch = "x86_64")]
pub(crate) const STACK_REGISTER: usize = 7;
#[cfg(target_arch = "aarch64")]
pub(crate) const STACK_REGISTER: usize = 31;

/// The dispatcher's end.
pub(crate) struct Area(SharedWords);

impl Area {
    pub(crate) fn create() -> std::io::Result<Self> {
        let words = SharedWords::create(WORDS)?;
        words.words()[0].store(MAGIC, Ordering::Relaxed);
        Ok(Self(words))
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.0.raw_fd()
    }

    fn word(&self, at: usize) -> u64 {
        self.0.words()[at].load(Ordering::Acquire)
    }

    /// The crash, if a handler saw one.
    pub(crate) fn crash(&self) -> Option<Raw> {
        self.slot(0, CRASH_STACK_AT, CRASH_STACK_LEN)
    }

    /// The threads that have answered so far.
    pub(crate) fn answers(&self) -> Vec<Raw> {
        let count = (self.word(ANSWERS_AT) as usize).min(THREADS);
        let at = |slot: usize| STACKS_AT + ((slot - 1) * STACK_LEN) as u64;
        (1..=count).filter_map(|slot| self.slot(slot, at(slot), STACK_LEN)).collect()
    }

    /// The module map at the crash, in the form of `/proc/self/maps`.
    pub(crate) fn maps(&self) -> String {
        let len = (self.word(MAPS_LEN_AT) as usize).min(MAPS_LEN);
        String::from_utf8_lossy(&self.bytes(MAPS_AT, len)).into_owned()
    }

    fn bytes(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut have = 0;
        while have < len {
            match rustix::io::pread(self.0.fd(), &mut bytes[have..], at + have as u64) {
                Ok(0) | Err(_) => break,
                Ok(n) => have += n,
            }
        }
        bytes.truncate(have);
        bytes
    }

    fn slot(&self, slot: usize, stack_at: u64, stack_len: usize) -> Option<Raw> {
        let at = slot_at(slot);
        let state = self.word(at + STATE);
        if state == 0 {
            return None;
        }
        let signal = self.word(at + SIGNAL);
        let name: Vec<u8> = [NAME, NAME + 1].iter().flat_map(|i| self.word(at + i).to_le_bytes()).collect();
        let name: Vec<u8> = name.into_iter().take_while(|byte| *byte != 0).collect();
        let bytes = (self.word(at + STACK_BYTES) as usize).min(stack_len);
        Some(Raw {
            signal: signal as u32 as i32,
            si_code: (signal >> 32) as u32 as i32,
            fault_addr: self.word(at + FAULT),
            thread: self.word(at + THREAD) as u32,
            name: String::from_utf8_lossy(&name).into_owned(),
            pc: self.word(at + PC),
            registers: (0..REGISTER_COUNT).map(|i| self.word(at + REGISTERS + i)).collect(),
            stack_base: self.word(at + STACK_BASE),
            stack: self.bytes(stack_at, bytes),
            complete: state == WRITTEN,
        })
    }
}
