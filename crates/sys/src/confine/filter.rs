//! System calls of a thread, by seccomp.
//!
//! A filter is compiled once for each kind. From Linux 5.11 on the kernel keeps a bitmap of the calls that a filter allows
//! whatever their arguments are, and runs no filter for these: all calls of the packet path are among them.
//!
//! A refused call raises a signal, which records it ([`super::refused`]). Calls that make threads and processes fail without it: the
//! C library blocks all signals around them, and the kernel kills a process that cannot get the signal.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::sync::OnceLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};
use syscalls::Sysno;

use super::kinds::{Allowed, Kind};

/// Return instruction of a program, with a constant (linux/bpf_common.h).
const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

/// Whether filters can be installed.
pub(super) fn is_available() -> Result<(), String> {
    // A thread of its own is confined, for good.
    let tried = std::thread::spawn(|| install(Kind::Background)).join();
    tried.unwrap_or_else(|_| Err(io::Error::other("the attempt failed"))).map_err(|e| e.to_string())
}

/// Confines the calling thread to the calls of its kind.
pub(super) fn install(kind: Kind) -> io::Result<()> {
    static PROGRAMS: [OnceLock<Result<BpfProgram, String>>; Kind::ALL.len()] =
        [const { OnceLock::new() }; Kind::ALL.len()];
    let program = PROGRAMS[kind as usize].get_or_init(|| compile(kind));
    let program = program.as_ref().map_err(|e| io::Error::other(e.clone()))?;
    rustix::thread::set_no_new_privs(true)?;
    let count = u16::try_from(program.len()).map_err(io::Error::other)?;
    let list = libc::sock_fprog { len: count, filter: program.as_ptr().cast_mut().cast() };
    // Without the flag, kernels before 5.16 turn off speculative store bypass in the thread, which slows it down. Kernels
    // before 4.17 do not know the flag.
    for flags in [libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0] {
        // SAFETY: `list` describes the program, which lives as long as the process; the kernel copies it. Its instructions have
        // the layout of `sock_filter` of the kernel in both crates.
        let result = unsafe {
            libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const list)
        };
        let error = io::Error::last_os_error();
        match result {
            0 => return Ok(()),
            _ if error.raw_os_error() == Some(libc::EINVAL) && flags != 0 => {}
            _ => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::EINVAL))
}

/// The identity of the architecture (linux/audit.h).
#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
/// The identity of the architecture (linux/audit.h).
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls that make threads and processes, with their error. The C library replaces clone3, whose flags no filter can read, by
/// clone.
const MAKERS: &[(Sysno, i32)] = &[
    (Sysno::clone3, libc::ENOSYS),
    #[cfg(target_arch = "x86_64")]
    (Sysno::fork, libc::EPERM),
    #[cfg(target_arch = "x86_64")]
    (Sysno::vfork, libc::EPERM),
];

/// The beginning of a program: decides about calls that make threads and processes, and about those that a tracer cancels.
fn beginning(starts_threads: bool) -> BpfProgram {
    // Places in `seccomp_data` (linux/seccomp.h), of the low half in the case of an argument.
    const CALL: u32 = 0;
    const IDENTITY: u32 = 4;
    const FIRST_ARGUMENT: u32 = 16;
    const THREAD: u32 = (libc::CLONE_VM | libc::CLONE_THREAD) as u32;
    let step = |code: u32, k: u32| sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let load = |place| step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, place);
    let end = |result| step(libc::BPF_RET | libc::BPF_K, result);
    let skip_unless = |value, steps: usize| sock_filter {
        jf: steps as u8,
        ..step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, value)
    };
    let refuse = |error: i32| end(libc::SECCOMP_RET_ERRNO | error as u32);
    // A tracer, such as strace, has replaced the call by none, and gives its result.
    let mut steps = vec![load(CALL), skip_unless(u32::MAX, 1), end(libc::SECCOMP_RET_ALLOW)];
    for (call, error) in MAKERS {
        steps.extend([skip_unless(call.id() as u32, 1), refuse(*error)]);
    }
    let of_clone = match starts_threads {
        false => vec![refuse(libc::EPERM)],
        true => vec![
            load(FIRST_ARGUMENT),
            step(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, THREAD),
            skip_unless(THREAD, 1),
            end(libc::SECCOMP_RET_ALLOW),
            refuse(libc::EPERM),
        ],
    };
    steps.push(skip_unless(Sysno::clone.id() as u32, of_clone.len()));
    steps.extend(of_clone);
    // Other architectures have other numbers; the rest of the program refuses them.
    let own = [load(IDENTITY), skip_unless(ARCHITECTURE, steps.len())];
    own.into_iter().chain(steps).collect()
}

fn compile(kind: Kind) -> Result<BpfProgram, String> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for allowed in kind.calls() {
        let (call, more) = rules_of(&allowed).map_err(|e| e.to_string())?;
        match rules.entry(call) {
            Entry::Vacant(place) => _ = place.insert(more),
            // No rule means that all arguments are allowed.
            Entry::Occupied(mut known) if known.get().is_empty() || more.is_empty() => {
                known.get_mut().clear()
            }
            Entry::Occupied(mut known) => known.get_mut().extend(more),
        }
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| e.to_string())?;
    let filter = SeccompFilter::new(rules, SeccompAction::Trap, SeccompAction::Allow, architecture);
    let mut program: BpfProgram = filter.and_then(TryInto::try_into).map_err(|e| e.to_string())?;
    for step in program.iter_mut().filter(|step| step.code == RETURN && step.k != libc::SECCOMP_RET_ALLOW) {
        // The handler of the signal gets the kind. The library kills the process for calls of another architecture; they are
        // refused instead.
        step.k = libc::SECCOMP_RET_TRAP | (kind as u32 + 1);
    }
    Ok(beginning(kind.starts_threads()).into_iter().chain(program).collect())
}

/// The number of a call, and what its arguments may be; nothing: all.
fn rules_of(allowed: &Allowed) -> Result<(i64, Vec<SeccompRule>), seccompiler::BackendError> {
    let is = |argument: u8, value: u32| {
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, u64::from(value));
        SeccompRule::new(vec![condition?])
    };
    Ok(match *allowed {
        Allowed::Always(call) => (i64::from(call.id()), Vec::new()),
        Allowed::If(call, argument, values) => {
            let rules: Result<Vec<_>, _> = values.iter().map(|value| is(argument, *value)).collect();
            (i64::from(call.id()), rules?)
        }
        Allowed::Bits { call, argument, mask, value } => {
            let op = SeccompCmpOp::MaskedEq(mask);
            let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Qword, op, value)?;
            (i64::from(call.id()), vec![SeccompRule::new(vec![condition])?])
        }
        Allowed::OwnProcess(call) => (i64::from(call.id()), vec![is(0, std::process::id())?]),
    })
}
