//! Refused system calls: the handler of SIGSYS that has them fail, and their record.

use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libc::{c_int, c_void, siginfo_t, ucontext_t};
use syscalls::Sysno;

use super::kinds::Kind;

/// `si_code` of a call that a filter refused (siginfo.h).
const SYS_SECCOMP: c_int = 1;
/// Recorded numbers of calls. The last one stands for all others: those of other architectures, for instance.
const CALLS: usize = 512;
/// Recorded kinds: 0 for filters of others.
const KINDS: usize = Kind::ALL.len() + 1;

/// The part of `siginfo_t` that SIGSYS has (siginfo.h).
#[repr(C)]
struct SigSys {
    _common: [c_int; 4],
    _address: *mut c_void,
    call: c_int,
    _architecture: u32,
}

/// Calls of one number by threads of one kind.
struct Entry {
    count: AtomicU32,
    /// The last of these threads.
    thread: AtomicU32,
}

static ENTRIES: [[Entry; CALLS]; KINDS] =
    [const { [const { Entry { count: AtomicU32::new(0), thread: AtomicU32::new(0) } }; CALLS] }; KINDS];
static TOTAL: AtomicU64 = AtomicU64::new(0);

/// System calls of one name that threads of one kind were refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The kind; `None`: its filter is not of this process.
    pub kind: Option<Kind>,
    /// Name and number of the call.
    pub call: String,
    /// Calls so far.
    pub count: u32,
    /// Id of the last of these threads.
    pub thread: u32,
}

/// Number of refused calls so far.
pub fn refused_calls() -> u64 {
    TOTAL.load(Ordering::Acquire)
}

/// All refused calls so far.
pub fn refused() -> Vec<Refused> {
    let calls = ENTRIES
        .iter()
        .enumerate()
        .flat_map(|(kind, calls)| calls.iter().enumerate().map(move |(number, entry)| (kind, number, entry)));
    calls
        .filter_map(|(kind, number, entry)| {
            let count = entry.count.load(Ordering::Relaxed);
            (count > 0).then(|| Refused {
                kind: kind.checked_sub(1).map(|kind| Kind::ALL[kind]),
                call: call_name(number),
                count,
                thread: entry.thread.load(Ordering::Relaxed),
            })
        })
        .collect()
}

fn call_name(number: usize) -> String {
    match Sysno::new(number) {
        Some(call) => format!("{} ({number})", call.name()),
        None if number < CALLS - 1 => number.to_string(),
        None => "of another architecture".to_string(),
    }
}

/// Has refused calls fail with EPERM, in all threads.
pub(super) fn install_handler() -> io::Result<()> {
    // SAFETY: the structure is plain data; the handler has the signature that SA_SIGINFO asks for, and is safe in signals.
    let result = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut())
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the calling thread, and those that it starts, get the signal: the kernel kills a process that blocks it, and the parent of
/// a process may have it blocked.
pub(super) fn unblock() -> io::Result<()> {
    // SAFETY: the set is plain data, which the first call fills.
    let error = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGSYS);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut())
    };
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

/// Records the call, and sets its result. Uses atomic values and one system call that each filter allows, nothing else.
extern "C" fn handle(_signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes both structures, which are alive until this function returns; SIGSYS of a filter has the
    // fields of `SigSys`.
    let (code, data, call, context) = unsafe {
        let (code, data) = ((*info).si_code, (*info).si_errno);
        let call = if code == SYS_SECCOMP { (*info.cast::<SigSys>()).call } else { -1 };
        (code, data, call, &mut *context.cast::<ucontext_t>())
    };
    // Another process sent the signal.
    if code != SYS_SECCOMP {
        return;
    }
    let number = usize::try_from(call).unwrap_or(CALLS).min(CALLS - 1);
    let kind = usize::try_from(data).unwrap_or(0);
    let entry = &ENTRIES[if kind < KINDS { kind } else { 0 }][number];
    // SAFETY: takes and touches nothing.
    let thread = unsafe { libc::syscall(libc::SYS_gettid) };
    entry.thread.store(thread as u32, Ordering::Relaxed);
    entry.count.fetch_add(1, Ordering::Relaxed);
    TOTAL.fetch_add(1, Ordering::Release);
    set_result(context, libc::EPERM);
}

/// Has the refused call return an error.
#[cfg(target_arch = "x86_64")]
fn set_result(context: &mut ucontext_t, error: c_int) {
    context.uc_mcontext.gregs[libc::REG_RAX as usize] = i64::from(-error);
}

/// Has the refused call return an error.
#[cfg(target_arch = "aarch64")]
fn set_result(context: &mut ucontext_t, error: c_int) {
    context.uc_mcontext.regs[0] = i64::from(-error) as u64;
}
