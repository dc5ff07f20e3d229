//! Signal handlers of a worker that write down raw facts: of a crash, or of
//! where a thread is when the dispatcher asks (SIGUSR2).
//!
//! They run on the alternate stack that the standard library gives each of its
//! threads, call nothing but system calls that are safe in a handler, read the
//! stack only through the kernel, and never allocate, lock or wait without
//! bound. Afterwards the handler that was there before runs (the standard
//! library's, which tells a stack overflow), then the default action: the wait
//! status stays that of the signal.

use super::area::{
    ANSWERS_AT, CRASH_STACK_AT, CRASH_STACK_LEN, FAULT, MAGIC, MAPS_AT, MAPS_LEN, MAPS_LEN_AT, NAME, PC,
    REGISTER_COUNT, REGISTERS, SIGNAL, STACK_BASE, STACK_BYTES, STACK_LEN, STACKS_AT, STATE, THREAD, THREADS, WORDS,
    WRITING, WRITTEN, slot_at,
};
use super::{ASK, SharedWords};
use libc::{c_int, c_void, siginfo_t, ucontext_t};
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};

const SIGNALS: [c_int; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS];
/// Pages that may be unreadable above the stack pointer after an overflow.
const GUARD_PAGES: u64 = 300;
const PAGE: u64 = 4096;
/// Bytes of the alternate stack of the thread that installs the handlers.
const ALTERNATE: usize = 64 << 10;

/// What handlers use. Set once, before any handler is installed.
struct HandlerState {
    area: SharedWords,
    pid: i32,
    /// Device and inode of the area: a library may have closed the descriptor,
    /// and its number may mean another file by now.
    identity: (u64, u64),
    /// The handlers that were there before, by index in [`SIGNALS`]; 0 for none.
    before: [AtomicUsize; SIGNALS.len()],
}

static HANDLERS: OnceLock<HandlerState> = OnceLock::new();
/// The first thread that crashed: only that one is of interest.
static CRASHED: AtomicI32 = AtomicI32::new(0);

/// Installs the handlers; they write to the inherited file `fd`.
pub(crate) fn install(fd: OwnedFd) -> io::Result<()> {
    let area = SharedWords::map(high(fd)?, WORDS)?;
    if area.words()[0].load(Ordering::Relaxed) != MAGIC {
        return Err(io::Error::other("the area for evidence has another version"));
    }
    let stat = rustix::fs::fstat(area.fd())?;
    let identity = (stat.st_dev, stat.st_ino);
    // SAFETY: no arguments, cannot fail.
    let pid = unsafe { libc::getpid() };
    let shared = HandlerState { area, pid, identity, before: Default::default() };
    if HANDLERS.set(shared).is_err() {
        return Err(io::Error::other("handlers are installed once"));
    }
    alternate_stack();
    set(ASK, answer).map(drop)?;
    rearm()
}

/// The descriptor under a high number, out of the way of code that closes low ones.
fn high(fd: OwnedFd) -> io::Result<OwnedFd> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(1024);
    let wanted = (limit.min(1024) as i32 - 32).max(3);
    Ok(rustix::io::fcntl_dupfd_cloexec(&fd, wanted).unwrap_or(fd))
}

/// Puts the handlers for crashes back where a library has replaced them. Cheap;
/// called before each case.
pub(crate) fn rearm() -> io::Result<()> {
    let Some(shared) = HANDLERS.get() else { return Ok(()) };
    for (signal, before) in SIGNALS.iter().zip(&shared.before) {
        let old = set(*signal, crashed)?;
        // Only the handlers of the very first time are kept: the standard
        // library's. A library's own may swallow the signal.
        let _ = before.compare_exchange(0, old.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }
    Ok(())
}

type Handler = extern "C" fn(c_int, *mut siginfo_t, *mut c_void);

/// Sets a handler and returns the one before.
fn set(signal: c_int, handler: Handler) -> io::Result<usize> {
    // SAFETY: `sigaction` is plain data for which all zeros is a valid value.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    new.sa_sigaction = handler as *const () as usize;
    new.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
    // SAFETY: both structures live across the calls, and the handlers only do
    // what is allowed in a handler.
    let result = unsafe {
        libc::sigemptyset(&mut new.sa_mask);
        libc::sigaction(signal, &new, &mut old)
    };
    if result == 0 { Ok(old.sa_sigaction) } else { Err(io::Error::last_os_error()) }
}

/// A roomier alternate stack for the calling thread, kept for the process's life.
fn alternate_stack() {
    let memory = Box::leak(vec![0u8; ALTERNATE].into_boxed_slice());
    let stack = libc::stack_t { ss_sp: memory.as_mut_ptr().cast(), ss_flags: 0, ss_size: memory.len() };
    // SAFETY: the memory is never freed nor used otherwise. The standard library
    // frees its own alternate stack of this thread only by its own address.
    unsafe { libc::sigaltstack(&stack, std::ptr::null_mut()) };
}

extern "C" fn crashed(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    if let Some(shared) = HANDLERS.get() {
        // SAFETY: system calls without pointers.
        let (pid, thread) = unsafe { (libc::getpid(), libc::gettid()) };
        // A forked child shares the area but is not the worker.
        if pid == shared.pid {
            match CRASHED.compare_exchange(0, thread, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => {
                    shared.record(0, signal, info, context);
                    shared.copy_maps();
                    shared.done(0);
                }
                // The default action of this thread's signal would end the
                // process before the first one is written down.
                Err(first) if first != thread => shared.wait_for_the_first(),
                Err(_) => {}
            }
        }
        if let Some(at) = SIGNALS.iter().position(|s| *s == signal) {
            let before = shared.before[at].load(Ordering::Relaxed);
            if before > 1 {
                // SAFETY: the standard library installed this with SA_SIGINFO
                // before `main`; it gets exactly what it would have got.
                let handler = unsafe { std::mem::transmute::<usize, Handler>(before) };
                handler(signal, info, context);
            }
        }
    }
    // SAFETY: async-signal-safe calls. The signal is blocked until this handler
    // returns, so it is delivered then, with its default action.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), libc::gettid(), signal);
    }
}

extern "C" fn answer(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the address of this thread's own variable.
    let errno = unsafe { *libc::__errno_location() };
    if let Some(shared) = HANDLERS.get() {
        let slot = shared.area.words()[ANSWERS_AT].fetch_add(1, Ordering::AcqRel) as usize + 1;
        if slot <= THREADS {
            shared.record(slot, signal, info, context);
            shared.done(slot);
        }
    }
    // SAFETY: as above; code that was interrupted must not see another value.
    unsafe { *libc::__errno_location() = errno };
}

impl HandlerState {
    fn put(&self, at: usize, value: u64) {
        self.area.words()[at].store(value, Ordering::Relaxed);
    }

    fn done(&self, slot: usize) {
        self.area.words()[slot_at(slot) + STATE].store(WRITTEN, Ordering::Release);
    }

    /// The facts first, the stack after them: the process may end any time.
    fn record(&self, slot: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let at = slot_at(slot);
        // SAFETY: the kernel passes valid pointers to a handler with SA_SIGINFO.
        let (code, fault, context) =
            unsafe { ((*info).si_code, (*info).si_addr() as u64, &*context.cast::<ucontext_t>()) };
        self.put(at + SIGNAL, u64::from(signal as u32) | u64::from(code as u32) << 32);
        self.put(at + FAULT, fault);
        // SAFETY: system calls; the name fits the 16 bytes that the call writes.
        let name = unsafe {
            self.put(at + THREAD, libc::gettid() as u64);
            let mut name = [0u64; 2];
            libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr());
            name
        };
        self.put(at + NAME, name[0]);
        self.put(at + NAME + 1, name[1]);
        let (pc, stack_pointer) = registers(context, |number, value| {
            if number < REGISTER_COUNT {
                self.put(at + REGISTERS + number, value);
            }
        });
        self.put(at + PC, pc);
        self.area.words()[at + STATE].store(WRITING, Ordering::Release);
        let (to, limit) = match slot {
            0 => (CRASH_STACK_AT, CRASH_STACK_LEN),
            _ => (STACKS_AT + ((slot - 1) * STACK_LEN) as u64, STACK_LEN),
        };
        if self.descriptor_is_ours() {
            self.copy_stack(at, stack_pointer, to, limit);
        }
    }

    fn descriptor_is_ours(&self) -> bool {
        let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the call fills the structure if it succeeds, and only then it is read.
        unsafe {
            libc::fstat(self.area.raw_fd(), stat.as_mut_ptr()) == 0 && {
                let stat = stat.assume_init_ref();
                (stat.st_dev, stat.st_ino) == self.identity
            }
        }
    }

    /// Copies from the stack pointer up to the stack's end. After an overflow
    /// the first pages cannot be read; the copy starts above them.
    fn copy_stack(&self, at: usize, stack_pointer: u64, to: u64, limit: usize) {
        let mut base = stack_pointer & !7;
        for _ in 0..GUARD_PAGES {
            let mut copied = 0;
            while copied < limit {
                // SAFETY: the kernel reads the memory and reports what it cannot read.
                let n = unsafe {
                    let from = (base as usize + copied) as *const c_void;
                    libc::pwrite(self.area.raw_fd(), from, limit - copied, (to as usize + copied) as libc::off_t)
                };
                if n <= 0 {
                    break;
                }
                copied += n as usize;
                self.put(at + STACK_BASE, base);
                self.put(at + STACK_BYTES, copied as u64);
            }
            if copied > 0 {
                return;
            }
            base = (base & !(PAGE - 1)).wrapping_add(PAGE);
        }
    }

    /// Copies the module map through a static buffer: the stack is small here.
    /// Only the first thread that crashes comes here.
    fn copy_maps(&self) {
        const CHUNK: usize = 16 << 10;
        static BUFFER: [AtomicU64; CHUNK / 8] = [const { AtomicU64::new(0) }; CHUNK / 8];
        if !self.descriptor_is_ours() {
            return;
        }
        let buffer = BUFFER.as_ptr() as *mut c_void;
        // SAFETY: system calls on a static buffer that this thread alone uses; its
        // words have interior mutability, so the kernel may write them.
        unsafe {
            let maps = libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let mut copied = 0;
            while maps >= 0 && copied + CHUNK <= MAPS_LEN {
                let n = libc::read(maps, buffer, CHUNK);
                if n <= 0 {
                    break;
                }
                libc::pwrite(self.area.raw_fd(), buffer, n as usize, (MAPS_AT as usize + copied) as libc::off_t);
                copied += n as usize;
                self.put(MAPS_LEN_AT, copied as u64);
            }
            libc::close(maps);
        }
    }

    /// Two seconds at most.
    fn wait_for_the_first(&self) {
        for _ in 0..2000 {
            if self.area.words()[slot_at(0) + STATE].load(Ordering::Acquire) == WRITTEN {
                return;
            }
            let pause = libc::timespec { tv_sec: 0, tv_nsec: 1_000_000 };
            // SAFETY: a system call on a local structure.
            unsafe { libc::nanosleep(&pause, std::ptr::null_mut()) };
        }
    }
}

/// Program counter and stack pointer; all registers by DWARF number to `put`.
#[cfg(target_arch = "x86_64")]
fn registers(context: &ucontext_t, put: impl Fn(usize, u64)) -> (u64, u64) {
    use libc::{REG_R8, REG_R9, REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15, REG_RAX, REG_RBP, REG_RBX};
    use libc::{REG_RCX, REG_RDI, REG_RDX, REG_RIP, REG_RSI, REG_RSP};
    let get = |register: c_int| context.uc_mcontext.gregs[register as usize] as u64;
    let order = [
        REG_RAX, REG_RDX, REG_RCX, REG_RBX, REG_RSI, REG_RDI, REG_RBP, REG_RSP, REG_R8, REG_R9, REG_R10, REG_R11,
        REG_R12, REG_R13, REG_R14, REG_R15, REG_RIP,
    ];
    order.iter().enumerate().for_each(|(number, register)| put(number, get(*register)));
    (get(REG_RIP), get(REG_RSP))
}

/// Program counter and stack pointer; all registers by DWARF number to `put`.
#[cfg(target_arch = "aarch64")]
fn registers(context: &ucontext_t, put: impl Fn(usize, u64)) -> (u64, u64) {
    let machine = &context.uc_mcontext;
    machine.regs.iter().enumerate().for_each(|(number, value)| put(number, *value));
    put(31, machine.sp);
    put(32, machine.pc);
    (machine.pc, machine.sp)
}
