//! Threads and processors.

use std::ffi::CString;
use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The longest thread name that the kernel keeps, in bytes.
const NAME_BYTES: usize = 15;

/// Names the calling thread; truncates after 15 bytes.
pub fn set_name(name: &str) -> io::Result<()> {
    let bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).take(NAME_BYTES).collect();
    let name = CString::new(bytes).map_err(io::Error::from)?;
    rustix::thread::set_name(&name).map_err(io::Error::from)
}

/// The kernel's id of the calling thread.
pub fn id() -> u32 {
    // Ids are positive.
    rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()
}

/// The processor that the calling thread runs on now.
pub fn cpu() -> u16 {
    rustix::thread::sched_getcpu().min(usize::from(u16::MAX)) as u16
}

/// Binds the calling thread to one processor.
pub fn pin_thread(cpu: usize) -> io::Result<()> {
    run_on(&[cpu])
}

/// Restricts the calling thread to these processors.
pub fn run_on(cpus: &[usize]) -> io::Result<()> {
    if let Some(cpu) = cpus.iter().find(|cpu| **cpu >= CpuSet::MAX_CPU) {
        let what = format!("processor {cpu}: only numbers below {} are", CpuSet::MAX_CPU);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).map_err(io::Error::from).map_err(|e| {
        let what = match cpus {
            [cpu] => format!("cannot run on processor {cpu}: {e}"),
            _ => format!("cannot run on processors {cpus:?}: {e}"),
        };
        io::Error::new(e.kind(), what)
    })
}

/// Makes sleeps of the calling thread end on time, instead of up to 50 µs late (PR_SET_TIMERSLACK).
pub fn precise_sleeps() -> io::Result<()> {
    rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1)).map_err(io::Error::from)
}

/// The processors on which the calling thread may run, ascending.
pub fn allowed_cpus() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).collect())
}

/// Number of online processors, whether or not this process may use them; at least 1.
pub fn online_cpus() -> usize {
    // SAFETY: no pointers are involved.
    let count = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    usize::try_from(count).unwrap_or(1).max(1)
}
