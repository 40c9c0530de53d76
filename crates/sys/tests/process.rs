//! Tests with more than one process: daemonizing, pid files, locks against other programs, signals, memory.
//! This program starts itself in a role; it has one thread, like a daemon at its start.
#![allow(unsafe_code, reason = "kill(2) and getsid(2)")]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use sys::lock::{FileLock, LockError};
use sys::pidfile::{self, PidFile, PidFileError};
use sys::poll::PollSet;
use sys::signals::{Signal, Signals};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if let [role, rest @ ..] = &args[..]
        && let Some(role) = role.strip_prefix("role:")
    {
        return run_role(role, rest);
    }
    let tests: [(&str, fn()); 13] = [
        ("a_daemon_returns_when_ready_and_lives_on", a_daemon_returns_when_ready_and_lives_on),
        ("a_daemon_that_fails_passes_its_status_on", a_daemon_that_fails_passes_its_status_on),
        ("a_daemon_that_is_killed_is_a_failure", a_daemon_that_is_killed_is_a_failure),
        ("threads_keep_a_process_in_the_foreground", threads_keep_a_process_in_the_foreground),
        ("a_pid_file_of_a_living_process_is_respected", a_pid_file_of_a_living_process_is_respected),
        ("a_stale_pid_file_is_replaced", a_stale_pid_file_is_replaced),
        ("a_killed_process_gives_up_its_pid_file", a_killed_process_gives_up_its_pid_file),
        ("a_leaving_process_gives_up_its_pid_file", a_leaving_process_gives_up_its_pid_file),
        ("a_lock_excludes_other_processes", a_lock_excludes_other_processes),
        ("a_lock_excludes_ovsdb_and_is_excluded_by_it", a_lock_excludes_ovsdb_and_is_excluded_by_it),
        ("signals_are_read", signals_are_read),
        ("memory_is_locked", memory_is_locked),
        ("another_user_keeps_the_network", another_user_keeps_the_network),
    ];
    let wanted = args.iter().find(|a| !a.starts_with('-'));
    for (name, test) in tests {
        if wanted.is_none_or(|w| name.contains(w.as_str())) {
            println!("test {name} ...");
            test();
            println!("test {name} ... ok");
        }
    }
    ExitCode::SUCCESS
}

fn run_role(role: &str, args: &[String]) -> ExitCode {
    match role {
        "daemon" => {
            let daemon = sys::daemon::detach().unwrap();
            let pidfile = PidFile::create(Path::new(&args[0]), false).unwrap();
            eprintln!("set up");
            let signals = Signals::hold().unwrap();
            daemon.ready(true).unwrap();
            println!("never seen");
            await_signal(&signals);
            drop(pidfile);
            ExitCode::SUCCESS
        }
        "user" => {
            let devices = args.len() < 2;
            let powers = if devices { sys::user::Powers::Devices } else { sys::user::Powers::Ports };
            sys::user::User::parse(&args[0]).unwrap().switch_to(powers).unwrap();
            print!("{}", std::fs::read_to_string("/proc/self/status").unwrap());
            ExitCode::SUCCESS
        }
        "failing" => {
            let _daemon = sys::daemon::detach().unwrap();
            eprintln!("no such database");
            ExitCode::from(args[0].parse::<u8>().unwrap())
        }
        "killed" => {
            let _daemon = sys::daemon::detach().unwrap();
            std::process::abort();
        }
        "threaded" => {
            let _other = std::thread::spawn(|| std::thread::sleep(Duration::from_secs(60)));
            ExitCode::from(u8::from(sys::daemon::detach().is_err()) + 40)
        }
        "lock" => {
            let _lock = FileLock::lock(Path::new(&args[0])).unwrap();
            say_and_wait()
        }
        "pidfile" => {
            let _pidfile = PidFile::create(Path::new(&args[0]), false).unwrap();
            say_and_wait()
        }
        "pidfile of a large process" => {
            let _pidfile = PidFile::create(Path::new(&args[0]), false).unwrap();
            // Freed before the kernel closes the files.
            let _memory = std::hint::black_box(vec![1u8; 256 << 20]);
            say_and_wait()
        }
        "mlock" => {
            sys::limits::lock_memory().unwrap();
            let status = std::fs::read_to_string("/proc/self/status").unwrap();
            let locked = status.lines().find_map(|l| l.strip_prefix("VmLck:")).unwrap();
            let kb: u64 = locked.trim().trim_end_matches(" kB").parse().unwrap();
            ExitCode::from(if kb > 100 { 0 } else { 1 })
        }
        other => panic!("no role {other}"),
    }
}

/// Reports to the parent that set-up is complete and waits until it closes our input.
fn say_and_wait() -> ExitCode {
    println!("ready");
    let _ = std::io::read_to_string(std::io::stdin());
    ExitCode::SUCCESS
}

fn await_signal(signals: &Signals) -> Signal {
    let mut set = PollSet::new();
    set.add(signals.fd(), false);
    loop {
        if let Some(signal) = signals.next().unwrap() {
            return signal;
        }
        set.wait(Some(Duration::from_secs(5))).unwrap();
    }
}

/// A directory removed at the end.
struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Dir {
        let dir = std::env::temp_dir().join(format!("sl-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        Dir(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn role(name: &str, arg: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.arg(format!("role:{name}")).arg(arg);
    command
}

/// A child that has reported ready.
struct Holder(std::process::Child);

impl Holder {
    fn start(name: &str, path: &Path) -> Holder {
        let mut child = role(name, path).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        let out = child.stdout.as_mut().unwrap();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        assert_eq!(line, "ready\n");
        Holder(child)
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn kill(pid: u32, signal: libc::c_int) {
    // SAFETY: signals a process started by the test.
    assert_eq!(unsafe { libc::kill(pid as libc::pid_t, signal) }, 0);
}

fn a_daemon_returns_when_ready_and_lives_on() {
    let dir = Dir::new("daemon");
    let file = dir.path("d.pid");
    let out = role("daemon", &file).output().unwrap();
    assert!(out.status.success(), "{out:?}");
    assert_eq!((&out.stdout[..], &out.stderr[..]), (&b""[..], &b"set up\n"[..]));
    let pid = pidfile::running(&file).unwrap().expect("runs");
    assert_ne!(pid, std::process::id());
    let proc = |what: &str| std::fs::read_link(format!("/proc/{pid}/{what}")).unwrap();
    assert_eq!(proc("cwd"), Path::new("/"));
    for fd in ["fd/0", "fd/1", "fd/2"] {
        assert_eq!(proc(fd), Path::new("/dev/null"));
    }
    // SAFETY: no pointers are involved.
    assert_eq!(unsafe { libc::getsid(pid as libc::pid_t) }, pid as libc::pid_t);
    let second = role("daemon", &file).output().unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("pid"), "{second:?}");
    kill(pid, libc::SIGTERM);
    wait_until("the pid file goes with the daemon", || !file.exists());
}

fn a_daemon_that_fails_passes_its_status_on() {
    let out = role("failing", "7").output().unwrap();
    assert_eq!(out.status.code(), Some(7));
    assert_eq!(out.stderr, b"no such database\n");
    assert_eq!(role("failing", "0").output().unwrap().status.code(), Some(1), "ended before it was ready");
}

fn a_daemon_that_is_killed_is_a_failure() {
    let out = role("killed", "").output().unwrap();
    assert_eq!(out.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&out.stderr).contains("signal 6"), "{out:?}");
}

fn threads_keep_a_process_in_the_foreground() {
    assert_eq!(role("threaded", "").output().unwrap().status.code(), Some(41));
}

fn a_pid_file_of_a_living_process_is_respected() {
    let dir = Dir::new("pidfile");
    let file = dir.path("x.pid");
    let holder = Holder::start("pidfile", &file);
    let theirs = holder.0.id();
    assert_eq!(std::fs::read_to_string(&file).unwrap(), format!("{theirs}\n"));
    match PidFile::create(&file, false) {
        Err(PidFileError::Running { pid, .. }) => assert_eq!(pid, theirs),
        other => panic!("{other:?}"),
    }
    // ovs-appctl considers the process alive and looks for its socket.
    if let Ok(out) =
        Command::new("ovs-appctl").env("OVS_RUNDIR", &dir.0).args(["-t", "x", "version"]).output()
    {
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        assert!(said.contains(&format!("x.{theirs}.ctl")), "{said}");
    }
    let ours = PidFile::create(&file, true).unwrap();
    assert_eq!(std::fs::read_to_string(ours.path()).unwrap(), format!("{}\n", std::process::id()));
    holder.end();
    assert!(file.exists(), "the other process leaves what is not its own");
    drop(ours);
    assert!(std::fs::read_dir(&dir.0).unwrap().next().is_none(), "nothing is left behind");
}

fn a_stale_pid_file_is_replaced() {
    let dir = Dir::new("stale");
    let file = dir.path("x.pid");
    std::fs::write(&file, "1\n").unwrap();
    assert_eq!(pidfile::running(&file).unwrap(), None);
    drop(PidFile::create(&file, false).unwrap());
    assert!(!file.exists());
    let e = PidFile::create(&dir.path("none/x.pid"), false).unwrap_err().to_string();
    assert!(e.contains("none/x.pid"), "{e}");
}

fn a_killed_process_gives_up_its_pid_file() {
    let dir = Dir::new("killed");
    let file = dir.path("x.pid");
    for _ in 0..5 {
        let mut holder = Holder::start("pidfile of a large process", &file);
        kill(holder.0.id(), libc::SIGKILL);
        // Without waiting for its end.
        drop(PidFile::create(&file, false).unwrap());
        holder.0.wait().unwrap();
    }
}

/// It ends while another process waits for its pid file, as `ovs-vswitchd` after its answer to `exit`.
fn a_leaving_process_gives_up_its_pid_file() {
    let dir = Dir::new("leaving");
    let file = dir.path("x.pid");
    let holder = Holder::start("pidfile", &file);
    let waits = std::thread::spawn({
        let file = file.clone();
        move || PidFile::create(&file, false).map(drop)
    });
    // The draft has its place before the wait.
    while std::fs::read_dir(&dir.0).unwrap().count() < 2 {
        std::thread::yield_now();
    }
    holder.end();
    waits.join().unwrap().unwrap();
}

fn a_lock_excludes_other_processes() {
    let dir = Dir::new("lock");
    let file = dir.path("conf.db");
    let holder = Holder::start("lock", &file);
    match FileLock::lock(&file) {
        Err(LockError::Held { pid, .. }) => assert_eq!(pid, holder.0.id()),
        other => panic!("{other:?}"),
    }
    holder.end();
    drop(FileLock::lock(&file).unwrap());
}

fn a_lock_excludes_ovsdb_and_is_excluded_by_it() {
    let dir = Dir::new("ovsdb");
    let (db, schema) = (dir.path("t.db"), dir.path("t.ovsschema"));
    let columns = r#"{"n":{"type":"integer"}}"#;
    let text = format!(r#"{{"name":"T","version":"1.0.0","tables":{{"A":{{"columns":{columns}}}}}}}"#);
    std::fs::write(&schema, text).unwrap();
    let Ok(made) = Command::new("ovsdb-tool").arg("create").args([&db, &schema]).output() else {
        println!("SKIP: no ovsdb-tool");
        return;
    };
    assert!(made.status.success(), "{made:?}");
    let compact = || Command::new("ovsdb-tool").arg("compact").arg(&db).output().unwrap();
    let lock = FileLock::lock(&db).unwrap();
    let refused = compact();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(said.contains(&format!("locked by pid {}", std::process::id())), "{said}");
    drop(lock);
    assert!(compact().status.success());
    let mut server = Command::new("ovsdb-server")
        .env("OVS_RUNDIR", &dir.0)
        .arg(format!("--remote=punix:{}", dir.path("db.sock").display()))
        .arg(format!("--unixctl={}", dir.path("ctl").display()))
        .arg(&db)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until(
        "ovsdb-server locks its database",
        || matches!(FileLock::lock(&db), Err(LockError::Held { pid, .. }) if pid == server.id()),
    );
    kill(server.id(), libc::SIGTERM);
    server.wait().unwrap();
    FileLock::lock(&db).unwrap();
}

fn signals_are_read() {
    let signals = Signals::hold().unwrap();
    assert_eq!(signals.next().unwrap(), None);
    let me = std::process::id();
    for (number, signal) in [
        (libc::SIGHUP, Signal::Hangup),
        (libc::SIGTERM, Signal::Terminate),
        (libc::SIGINT, Signal::Interrupt),
    ] {
        kill(me, number);
        assert_eq!(await_signal(&signals), signal);
    }
    kill(me, libc::SIGPIPE);
    assert_eq!(signals.next().unwrap(), None);
    assert!(Command::new("true").status().unwrap().success(), "children can be waited for");
}

fn memory_is_locked() {
    let out = role("mlock", "").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    if said.contains("PermissionDenied") || said.contains("OutOfMemory") {
        println!("SKIP: memory_is_locked: not allowed");
        return;
    }
    assert!(out.status.success(), "{said}");
}

fn another_user_keeps_the_network() {
    for spec in ["no-such-user-anywhere", "root:no-such-group-anywhere", "4294967295999"] {
        assert!(sys::user::User::parse(spec).is_err(), "{spec}");
    }
    let own = sys::user::User::parse(":").unwrap();
    own.switch_to(sys::user::Powers::Devices).unwrap();
    if !rustix::process::geteuid().is_root() {
        println!("SKIP: another_user_keeps_the_network: not root");
        return;
    }
    let capabilities = |words: &[&str]| {
        let role = Command::new(std::env::current_exe().unwrap()).args(["role:user"]).args(words).output();
        let status = String::from_utf8(role.unwrap().stdout).unwrap();
        let field = |name: &str| {
            let line =
                status.lines().find(|l| l.starts_with(name)).unwrap_or_else(|| panic!("{name} in {status}"));
            line.split_whitespace().skip(1).map(str::to_string).collect::<Vec<_>>()
        };
        let nobody = "65534".to_string();
        assert_eq!(field("Uid:"), [nobody.clone(), nobody.clone(), nobody.clone(), nobody]);
        u64::from_str_radix(&field("CapEff:")[0], 16).unwrap()
    };
    let kept = capabilities(&["nobody"]);
    // CAP_NET_ADMIN, CAP_NET_RAW; not CAP_SYS_ADMIN, CAP_DAC_OVERRIDE.
    assert_eq!((kept >> 12 & 1, kept >> 13 & 1, kept >> 21 & 1, kept >> 1 & 1), (1, 1, 0, 0));
    // CAP_NET_BIND_SERVICE and CAP_IPC_LOCK alone.
    assert_eq!(capabilities(&["nobody", "ports"]), 1 << 10 | 1 << 14);
}
