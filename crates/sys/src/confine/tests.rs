//! Tests of confined threads. The test's own threads stay unconfined.

use std::io::ErrorKind;
use std::net::UdpSocket;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::kinds::Allowed;
use super::{Chosen, Kind, Means, Refused, confine, files, filter, refused};

/// Runs on a thread of a kind.
fn on<T: Send + 'static>(kind: Kind, work: impl FnOnce() -> T + Send + 'static) -> T {
    in_folder(kind, std::path::PathBuf::new(), work)
}

/// Runs on a thread of a kind that has this folder.
fn in_folder<T: Send + 'static>(
    kind: Kind,
    folder: std::path::PathBuf,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    refused::install_handler().unwrap();
    let run = move || {
        let means = Means { calls: filter::is_available(), files: files::is_available() };
        let chosen = Chosen { means, locks_memory: false };
        confine(kind, &[&folder], &chosen).unwrap();
        work()
    };
    std::thread::spawn(run).join().unwrap()
}

/// Whether this kernel confines threads; prints why it does not.
fn is_confining(test: &str) -> bool {
    for (means, available) in [("seccomp", filter::is_available()), ("Landlock", files::is_available())] {
        if let Err(e) = available {
            println!("SKIP: {test}: no {means}: {e}");
            return false;
        }
    }
    true
}

/// Lines of the calling thread's status in `/proc`, which a thread reads from outside.
fn status_of(thread: u32, name: &str) -> String {
    let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_string()
}

fn count(kind: Kind, call: &str) -> u32 {
    let is = |r: &&Refused| r.kind == Some(kind) && r.call.starts_with(&format!("{call} ("));
    refused::refused().iter().find(is).map_or(0, |r| r.count)
}

#[test]
fn each_kind_of_thread_works() {
    if !is_confining("each_kind_of_thread_works") {
        return;
    }
    for kind in Kind::ALL {
        let to = UdpSocket::bind("127.0.0.1:0").unwrap();
        let from = UdpSocket::bind("127.0.0.1:0").unwrap();
        from.connect(to.local_addr().unwrap()).unwrap();
        let waker = Arc::new(crate::Waker::new().unwrap());
        let woken = waker.clone();
        let shared = Arc::new(Mutex::new(Vec::new()));
        let filled = shared.clone();
        on(*kind, move || {
            std::thread::sleep(Duration::from_millis(1));
            // Large blocks are mapped, grown and returned.
            let mut block = vec![1_u8; 1 << 20];
            block.resize(2 << 20, 2);
            filled.lock().unwrap().push(block.len());
            drop(block);
            crate::clock::monotonic_us();
            crate::random::u64().unwrap();
            crate::thread::set_name("confined").unwrap();
            from.send(b"x").unwrap();
            woken.wake();
            std::thread::park_timeout(Duration::from_millis(1));
        });
        assert_eq!(*shared.lock().unwrap(), [2 << 20]);
        assert!(waker.drain(), "{kind:?}");
        assert_eq!(to.recv(&mut [0; 2]).unwrap(), 1, "{kind:?}");
    }
}

#[test]
fn other_calls_fail_and_are_recorded() {
    if !is_confining("other_calls_fail_and_are_recorded") {
        return;
    }
    for kind in Kind::ALL {
        let before = ["execve", "ptrace", "socket"].map(|call| count(*kind, call));
        let errors = on(*kind, || {
            // SAFETY: the calls are refused; they would change nothing with these arguments.
            let raw = |call: libc::c_long| match unsafe { libc::syscall(call, 0, 0, 0) } {
                -1 => std::io::Error::last_os_error().raw_os_error(),
                _ => None,
            };
            // Domain 0 is none of those of a kind.
            [libc::SYS_execve, libc::SYS_ptrace, libc::SYS_socket].map(raw)
        });
        assert_eq!(errors, [Some(libc::EPERM); 3], "{kind:?}");
        let after = ["execve", "ptrace", "socket"].map(|call| count(*kind, call));
        assert_eq!(after, before.map(|n| n + 1), "{kind:?}");
    }
}

#[test]
fn threads_start_threads_only_if_their_kind_does_and_never_processes() {
    if !is_confining("threads_start_threads_only_if_their_kind_does_and_never_processes") {
        return;
    }
    let nested = on(Kind::Translation, || {
        let opened =
            std::thread::spawn(|| std::fs::File::open("/proc/self/status").map(drop)).join().unwrap();
        let started = std::process::Command::new("true").spawn();
        (opened.unwrap_err().kind(), started.unwrap_err().kind())
    });
    assert_eq!(nested, (ErrorKind::PermissionDenied, ErrorKind::PermissionDenied));
    let spawned = on(Kind::Background, || std::thread::Builder::new().spawn(|| ()).map(drop));
    assert!(spawned.is_err());
}

#[test]
fn threads_keep_the_capabilities_of_their_kind_alone() {
    if !is_confining("threads_keep_the_capabilities_of_their_kind_alone") {
        return;
    }
    let own = status_of(crate::thread::id(), "CapEff:");
    let own = u64::from_str_radix(&own, 16).unwrap();
    for kind in Kind::ALL {
        let (told, asked) = std::sync::mpsc::channel();
        let (go_on, waits) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            on(*kind, move || {
                told.send(crate::thread::id()).unwrap();
                let _ends = waits.recv();
            });
        });
        let id = asked.recv().unwrap();
        let kept = kind.row().capabilities.iter().fold(0, |all, one| all | one.bitmask());
        for set in ["CapEff:", "CapPrm:"] {
            assert_eq!(status_of(id, set), format!("{:016x}", kept & own), "{kind:?} {set}");
        }
        assert_eq!((status_of(id, "Seccomp:"), status_of(id, "NoNewPrivs:")), ("2".into(), "1".into()));
        drop(go_on);
        thread.join().unwrap();
    }
    assert_eq!(status_of(crate::thread::id(), "Seccomp:"), "0", "the test itself is free");
}

#[test]
fn files_are_those_of_the_given_folder() {
    if !is_confining("files_are_those_of_the_given_folder") {
        return;
    }
    let (inside, outside) =
        (testkit::TempDir::new("inside").unwrap(), testkit::TempDir::new("outside").unwrap());
    let other = outside.path().join("other");
    std::fs::write(&other, "kept").unwrap();
    let folder = inside.path().to_path_buf();
    let seen = in_folder(Kind::Files, folder.clone(), move || {
        let (next, last) = (folder.join("next"), folder.join("last"));
        std::fs::write(&next, "1").unwrap();
        std::fs::rename(&next, &last).unwrap();
        std::fs::File::open(&folder).unwrap().sync_all().unwrap();
        assert_eq!(std::fs::read_to_string(&last).unwrap(), "1");
        let elsewhere = other.with_file_name("new");
        let refused = [
            std::fs::read(&other).map(drop),
            std::fs::write(&other, "lost"),
            std::fs::write(elsewhere, "lost"),
            std::fs::remove_file(&other),
            std::fs::rename(&last, &other),
        ];
        std::fs::remove_file(&last).unwrap();
        refused.map(|result| {
            result
                .map_err(|e| e.kind() == ErrorKind::PermissionDenied || e.raw_os_error() == Some(libc::EXDEV))
        })
    });
    assert_eq!(seen, [Err(true); 5]);
    assert_eq!(std::fs::read_to_string(outside.path().join("other")).unwrap(), "kept");
    assert!(!outside.path().join("new").exists());
}

#[test]
fn kinds_differ_in_names_and_none_may_start_programs() {
    let names: std::collections::BTreeSet<&str> = Kind::ALL.iter().map(|kind| kind.name()).collect();
    assert_eq!(names.len(), Kind::ALL.len());
    for kind in Kind::ALL {
        for allowed in kind.calls() {
            let (Allowed::Always(call)
            | Allowed::If(call, ..)
            | Allowed::Bits { call, .. }
            | Allowed::OwnProcess(call)) = allowed;
            let is_none = ["execve", "execveat", "ptrace", "fork", "vfork", "setns", "mount", "capset"];
            assert!(!is_none.contains(&call.name()), "{kind:?}");
        }
    }
}

/// A fault in a confined thread ends the process by its signal, as it does elsewhere.
#[test]
fn a_fault_ends_the_process() {
    if !is_confining("a_fault_ends_the_process") {
        return;
    }
    for kind in Kind::ALL {
        // SAFETY: the child only confines itself and faults.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
            // SAFETY: takes a number and a structure.
            unsafe { libc::setrlimit(libc::RLIMIT_CORE, &no_core) };
            let chosen = Chosen { means: Means { calls: Ok(()), files: Ok(()) }, locks_memory: false };
            let _confined = confine(*kind, &[], &chosen);
            // SAFETY: none: the address is invalid, which is the test.
            unsafe { std::ptr::without_provenance_mut::<u8>(8).write_volatile(1) };
            std::process::exit(0);
        }
        let mut status = 0;
        // SAFETY: `status` is a valid place; the child is this process's own.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        let is_fault = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV;
        assert!(is_fault, "{kind:?}: {status:#x}");
    }
}
