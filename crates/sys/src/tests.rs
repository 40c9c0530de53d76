//! Tests within one process; `tests/process.rs` has those with several.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lock::{FileLock, LockError};
use crate::poll::PollSet;
use crate::{Waker, clock, limits, random, thread};

#[test]
fn clocks_go_forward_and_agree_with_std() {
    let before = clock::monotonic_us();
    std::thread::sleep(Duration::from_millis(5));
    assert!(clock::monotonic_us() - before >= 5000);
    let std = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(clock::wall_ms().abs_diff(std) < 1000);
    assert!(clock::monotonic_ms().abs_diff(clock::monotonic_us() / 1000) < 1000);
}

#[test]
fn random_numbers_differ_and_uuids_have_their_version() {
    assert_ne!(random::u128().unwrap(), random::u128().unwrap());
    assert_ne!(random::u64().unwrap(), random::u64().unwrap());
    for _ in 0..50 {
        let text = format!("{:032x}", random::uuid().unwrap());
        assert_eq!(&text[12..13], "4");
        assert!("89ab".contains(&text[16..17]), "{text}");
    }
    let mut long = [0; 1000];
    random::fill(&mut long).unwrap();
    assert!(long.chunks(100).all(|c| c.iter().any(|b| *b != 0)));
}

#[test]
fn a_waker_wakes_once_for_many() {
    let waker = Arc::new(Waker::new().unwrap());
    assert!(!waker.drain());
    let theirs = Arc::clone(&waker);
    let other = std::thread::spawn(move || (0..3).for_each(|_| theirs.wake()));
    let mut set = PollSet::new();
    let place = set.add(waker.fd(), false);
    assert_eq!(set.wait(Some(Duration::from_secs(5))).unwrap(), 1);
    assert!(set.ready(place).readable && !set.ready(place).error);
    other.join().unwrap();
    assert!(waker.drain());
    assert!(!waker.drain());
    assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), 0);
    assert!(!set.ready(place).readable);
}

#[test]
fn poll_waits_for_its_timeout_and_sees_writers_and_ends() {
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut set = PollSet::new();
    let (ra, rb) = (set.add(a.as_fd(), false), set.add(b.as_fd(), true));
    assert_eq!(set.wait(None).unwrap(), 1);
    assert!(set.ready(rb).writable && !set.ready(ra).readable);
    let mut set = PollSet::new();
    set.add(a.as_fd(), false);
    let start = Instant::now();
    assert_eq!(set.wait(Some(Duration::from_micros(20_500))).unwrap(), 0);
    assert!(start.elapsed() >= Duration::from_micros(20_500));
    drop(b);
    assert_eq!(set.wait(None).unwrap(), 1);
    assert!(set.ready(0).error && set.ready(0).readable);
}

#[test]
fn threads_are_named_and_pinned() {
    std::thread::spawn(|| {
        thread::set_name("a-name-longer-than-kept").unwrap();
        assert_eq!(std::fs::read_to_string("/proc/thread-self/comm").unwrap(), "a-name-longer-t\n");
        let cpus = thread::allowed_cpus().unwrap();
        let last = *cpus.last().unwrap();
        thread::pin_thread(last).unwrap();
        assert_eq!(thread::allowed_cpus().unwrap(), [last]);
        assert!(thread::pin_thread(1000).unwrap_err().to_string().contains("1000"));
        assert!(thread::pin_thread(usize::MAX).is_err());
        assert!(thread::online_cpus() >= 1);
    })
    .join()
    .unwrap();
}

#[test]
fn the_limit_of_open_files_is_never_lowered() {
    let first = limits::raise_open_files(1).unwrap();
    assert!(first > 1);
    let more = limits::raise_open_files(first.saturating_add(1)).unwrap();
    assert!(more >= first);
    assert_eq!(limits::raise_open_files(1).unwrap(), more);
}

#[test]
fn a_lock_is_had_once_in_a_process_and_again_after() {
    let dir = std::env::temp_dir().join(format!("sl-lock-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("links")).unwrap();
    let file = dir.join("conf.db");
    let link = dir.join("links/other.db");
    let _ = std::os::unix::fs::symlink("../conf.db", &link);
    let lock = FileLock::lock(&file).unwrap();
    assert_eq!(lock.path(), dir.join(".conf.db.~lock~"));
    assert!(matches!(FileLock::lock(&file), Err(LockError::HeldHere { .. })));
    assert!(matches!(FileLock::lock(&link), Err(LockError::HeldHere { .. })), "by way of a link");
    let other = FileLock::lock(&dir.join("other.db")).unwrap();
    drop(lock);
    assert!(dir.join(".conf.db.~lock~").exists());
    drop(FileLock::lock(&link).unwrap());
    drop(other);
    let missing = FileLock::lock(&dir.join("none/x")).unwrap_err().to_string();
    assert!(missing.contains("none/.x.~lock~"), "{missing}");
    std::fs::remove_dir_all(dir).unwrap();
}

#[test]
fn sockets_have_their_mode_and_those_of_the_dead_are_replaced() {
    use crate::local::{Server, listen_at, remove_stale, server};
    use std::os::unix::fs::PermissionsExt;
    let dir = testkit::TempDir::new("local").unwrap();
    let path = dir.path().join("a.sock");
    assert_eq!(server(&path).unwrap(), None);
    let listener = listen_at(&path, 0o700).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o700);
    assert_eq!(server(&path).unwrap(), Some(Server::Process(std::process::id())));
    assert_eq!(listen_at(&path, 0o700).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);
    // Places in the backlog stay taken after their clients have closed.
    while server(&path).unwrap() == Some(Server::Process(std::process::id())) {}
    assert_eq!(server(&path).unwrap(), Some(Server::Full));
    drop(listener);
    assert_eq!(server(&path).unwrap(), None);
    drop(listen_at(&path, 0o700).unwrap());
    let file = dir.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    assert_eq!(listen_at(&file, 0o700).unwrap_err().kind(), std::io::ErrorKind::AddrInUse);

    // Sockets of an ended process and of this one, one with a listener, a plain file, and one of another kind.
    let mut ended = std::process::Command::new("true").spawn().unwrap();
    ended.wait().unwrap();
    let (dead, own) = (ended.id(), std::process::id());
    let make = |name: String| listen_at(&dir.path().join(name), 0o700).unwrap();
    drop([make(format!("d.{dead}.ctl")), make(format!("d.{own}.ctl")), make(format!("x.{dead}.ctl"))]);
    drop(make(format!("d.{dead}.events")));
    let listened = make(format!("e.{dead}.ctl"));
    std::fs::write(dir.path().join(format!("e.{dead}0.ctl")), "").unwrap();
    remove_stale(dir.path(), &[("d", "ctl"), ("d", "events"), ("e", "ctl")]);
    let mut left: Vec<String> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
        .filter(|name| name != "a.sock" && name != "file")
        .collect();
    left.sort();
    let mut kept =
        [format!("d.{own}.ctl"), format!("e.{dead}.ctl"), format!("e.{dead}0.ctl"), format!("x.{dead}.ctl")];
    kept.sort();
    assert_eq!(left, kept);
    drop(listened);
}

#[test]
fn figures_of_proc_are_read() {
    use crate::machine::{
        Memory, Process, file_systems, parse_memory, parse_process, process, writable_mounts,
    };
    let text =
        "MemTotal: 100 kB\nMemFree: 40 kB\nBuffers: 5 kB\nCached: 6 kB\nSwapTotal: 9 kB\nSwapFree: 7 kB\n";
    let expected = Memory { total_kb: 100, used_kb: 60, cache_kb: 11, swap_kb: 9, swap_used_kb: 2 };
    assert_eq!((parse_memory(text), parse_memory("MemTotal: x")), (Some(expected), None));

    let fields = "S 4 0 0 0 0 0 0 0 0 0 70 30 0 0 0 0 0 0 5000 8192 3 0 0 0 0 0 0 0 0 0 0 0 0 0 0 6 0";
    let expected =
        Process { virtual_kb: 8, resident_kb: 12, cpu_ms: 1000, running_ms: 10_000, core: 6, parent: 4 };
    for (stat, expected) in [
        (format!("12 (a) b) {fields}"), Some(expected)),
        ("12 (short) S 4".to_string(), None),
        (String::new(), None),
    ] {
        assert_eq!(parse_process(&stat, 60_000, 100, 4), expected, "{stat}");
    }
    assert!(process(std::process::id()).unwrap().resident_kb > 100 && process(u32::MAX).is_none());

    let mounts = "/dev/a / ext4 rw,relatime 0 0\n/dev/b /ro ext4 ro 0 0\ntmpfs /tmp tmpfs rw 0 0\n\
                  /dev/c /with\\040blank xfs nosuid,rw 0 0\n/dev/a / ext4 rw 0 0\n\
                  nsfs /run/netns/a nsfs rw 0 0\nshort\n";
    assert_eq!(writable_mounts(mounts, "nodev\ttmpfs\n\text4\n"), ["/", "/with blank"]);
    assert!(file_systems().iter().all(|f| f.used_kb <= f.total_kb));
}

#[test]
fn errors_lose_their_numbers() {
    for (text, expected) in [
        ("Connection refused (os error 111)", "Connection refused"),
        ("a: No such file or directory (os error 2): b (os error 3)", "a: No such file or directory: b"),
        ("plain", "plain"),
        ("f (os error x) y", "f (os error x) y"),
        ("f (os error 1", "f (os error 1"),
    ] {
        assert_eq!(crate::os_text(text), expected);
    }
    assert_eq!(crate::os_text(&std::io::Error::from_raw_os_error(111)), "Connection refused");
}

#[test]
fn an_interval_expires_until_it_is_off() {
    let interval = crate::interval::Interval::new().unwrap();
    assert_eq!(interval.take(), 0);
    interval.set(Some(Duration::from_micros(200))).unwrap();
    let mut seen = 0;
    let deadline = Instant::now() + Duration::from_secs(60);
    while seen < 3 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(100));
        seen += interval.take();
    }
    assert!(seen >= 3);
    interval.set(None).unwrap();
    interval.take();
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(interval.take(), 0);
}
