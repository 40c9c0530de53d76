//! `sluice ctl` and the daemon that it starts and ends; messages of the daemon to a service manager.

use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use testkit::{
    Cmd, DaemonSpec, Netns, Output, RunDir, Signal, TempDir, require_netns, require_programs, wait_for,
};

use crate::cli::program;
use crate::helpers::{LIMIT, on_kernel, received_text, spec};

/// A machine without a service manager. Ends its daemon when dropped.
struct Machine {
    netns: Netns,
    run: RunDir,
    settings: TempDir,
}

impl Machine {
    fn new(tag: &str) -> Machine {
        let settings = TempDir::new(&format!("{tag}-etc")).unwrap();
        Machine { netns: Netns::new(tag).unwrap(), run: RunDir::new(tag).unwrap(), settings }
    }

    fn tool(&self, words: &[&str]) -> Cmd {
        let tool = self.run.tool(&program(), Some(&self.netns)).args(words.iter().copied());
        tool.env("OVS_SYSCONFDIR", self.settings.path())
    }

    fn ctl(&self, words: &[&str]) -> Output {
        self.tool(&[&["ctl"], words].concat()).output().unwrap()
    }

    /// Starts or restarts the daemon.
    fn begin(&self, action: &str, options: &[&str]) -> String {
        let system = if on_kernel() { "" } else { "--disable-system" };
        let daemon = format!("--ovs-vswitchd-options={system}");
        let common = [action, "--no-mlockall", "--ovs-vswitchd-priority=0", "--no-full-hostname", &daemon];
        let output = self.ctl(&[&common, options].concat());
        assert!(output.status.success(), "{output:?}");
        output.stdout
    }

    fn vsctl(&self, line: &str) -> String {
        let words: Vec<&str> = ["vsctl", "--timeout=20"].into_iter().chain(line.split(' ')).collect();
        self.tool(&words).run().unwrap().stdout.trim().to_string()
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.run.join("ovs-vswitchd.pid")).unwrap().trim().to_string()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ended = self.tool(&["ctl", "stop"]).output();
    }
}

#[test]
fn a_daemon_starts_restarts_and_stops_without_a_service_manager() {
    require_netns!();
    require_programs!(program().as_str(), "nice");
    let machine = Machine::new("ctl");
    let status = machine.ctl(&["status"]);
    assert_eq!((status.status.code(), status.stdout.as_str()), (Some(1), "sluiced is not running\n"));
    assert_eq!(machine.ctl(&["stop"]).stdout, "sluiced is not running.\n");
    let check = machine.ctl(&["check"]);
    assert!(check.status.success() && check.stdout.contains("does not exist yet"), "{check:?}");

    let started = machine.begin("start", &["--system-type=T", "--system-version=7", "--external-id=a=b c"]);
    assert_eq!(started, "Starting sluiced.\nConfiguring Open vSwitch system IDs.\n");
    let (pid, run) = (machine.pid(), machine.run.path().display().to_string());
    let status = machine.ctl(&["status"]);
    assert_eq!(
        (status.status.code(), status.stdout),
        (Some(0), format!("sluiced is running with pid {pid}\n"))
    );
    let reloaded = machine.ctl(&["reload"]);
    assert!(reloaded.status.success() && reloaded.stdout == "Handing over sluiced.\n", "{reloaded:?}");
    let pid_of_new = |old: &str| {
        let text = std::fs::read_to_string(machine.run.join("ovs-vswitchd.pid")).unwrap_or_default();
        Some(text.trim().to_string()).filter(|new| !new.is_empty() && new != old)
    };
    wait_for(LIMIT, "the pid file of the new process", || pid_of_new(&pid).is_some()).unwrap();
    let pid = machine.pid();
    let id = std::fs::read_to_string(machine.settings.path().join("openvswitch/system-id.conf")).unwrap();
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for (key, value) in [("system-id", id.trim()), ("rundir", &run), ("hostname", host.trim()), ("a", "b c")]
    {
        assert_eq!(
            machine.vsctl(&format!("get open . external_ids:{key}")).trim_matches('"'),
            value,
            "{key}"
        );
    }
    assert_eq!(machine.vsctl("get open . system_type system_version").replace('"', ""), "T\n7");
    assert_eq!(machine.begin("start", &[]), "sluiced is already running.\n");
    assert!(machine.ctl(&["check"]).status.success());
    // The running version is that of the program: it has no line of its own.
    let version = machine.ctl(&["version"]).stdout;
    let running = machine.tool(&["appctl", "sluice/version"]).run().unwrap().stdout;
    assert!(
        version.lines().any(|line| line == running.trim()) && !version.contains("running: "),
        "{version}{running}"
    );

    machine.vsctl("add-br br0 -- add-br br1");
    machine.vsctl("add-port br1 passing -- set interface passing type=internal -- set port passing other_config:transient=true");
    assert!(machine.ctl(&["delete-transient-ports"]).status.success());
    assert_eq!(machine.vsctl("list-ports br1"), "");
    let restarted = machine.begin("restart", &["--system-id=own"]);
    assert!(restarted.starts_with(&format!("Exiting sluiced ({pid}).\nStarting sluiced.\n")), "{restarted}");
    assert_eq!(machine.vsctl("list-br"), "br0\nbr1");
    assert_eq!(machine.vsctl("get open . external_ids:system-id"), "own");
    // With other arguments it was another daemon; with the same ones the daemon hands over.
    let pid = machine.pid();
    let handed = machine.begin("restart", &["--system-id=new"]);
    assert_eq!(handed, "Handing over sluiced.\nConfiguring Open vSwitch system IDs.\n");
    wait_for(LIMIT, "the pid file of the successor", || pid_of_new(&pid).is_some()).unwrap();
    assert_eq!(machine.vsctl("get open . external_ids:system-id"), "new");
    machine.begin("restart", &["--delete-bridges", "--no-monitor"]);
    assert_eq!(machine.vsctl("list-br"), "");
    let pid = machine.pid();
    let stopped = machine.ctl(&["stop"]);
    assert_eq!((stopped.status.code(), stopped.stdout), (Some(0), format!("Exiting sluiced ({pid}).\n")));
    assert_eq!(machine.ctl(&["status"]).stdout, "sluiced is not running\n");
}

#[test]
fn a_daemon_that_hangs_is_killed() {
    require_netns!();
    require_programs!(program().as_str(), "nice", "kill");
    let machine = Machine::new("hung");
    let hang = || {
        let pid = machine.pid();
        Cmd::new("kill").args(["-STOP", &pid]).run().unwrap();
        format!(
            "Exiting sluiced ({pid}) ... failed!\nKilling sluiced ({pid}).\nKilling sluiced ({pid}) with SIGKILL.\n"
        )
    };
    machine.begin("start", &[]);
    let killed = hang();
    let restarted = machine.begin("restart", &[]);
    assert_eq!(restarted, killed + "Starting sluiced.\nConfiguring Open vSwitch system IDs.\n");
    let killed = hang();
    let stopped = machine.ctl(&["stop"]);
    assert_eq!((stopped.status.code(), stopped.stdout), (Some(0), killed));
    let stale =
        format!("Pidfile for sluiced ({}) is stale\n", machine.run.join("ovs-vswitchd.pid").display());
    assert_eq!(machine.ctl(&["status"]).stdout, stale);
}

/// Another program in the place of the daemon.
#[test]
fn a_process_of_another_program_is_left_alone() {
    require_netns!();
    require_programs!(program().as_str(), "ovsdb-server", "ovsdb-tool");
    let machine = Machine::new("other");
    let (file, pid_file) = (machine.run.join("other.db"), machine.run.join("ovs-vswitchd.pid"));
    let schema = "/usr/share/openvswitch/vswitch.ovsschema";
    Cmd::new("ovsdb-tool").args(["create", file.to_str().unwrap(), schema]).run().unwrap();
    let pid_file = format!("--pidfile={}", pid_file.display());
    let other = DaemonSpec::new("ovsdb-server").unwrap().netns(&machine.netns).rundir(&machine.run);
    let mut other = other.args([file.to_str().unwrap(), &pid_file]).start().unwrap();
    let found = format!("ovsdb-server is running with pid {} in the place of sluiced", other.pid());
    let status = machine.ctl(&["status"]);
    assert_eq!((status.status.code(), status.stdout), (Some(1), format!("{found}\n")));
    let stop = machine.ctl(&["stop"]);
    assert!(
        stop.status.code() == Some(1) && stop.stderr.contains(&format!("{found}: it is left alone")),
        "{stop:?}"
    );
    let start = machine.ctl(&["start"]);
    assert_eq!(
        (start.status.code(), start.stdout),
        (Some(1), format!("Starting sluiced: {found} ... failed!\n"))
    );
    assert!(other.status().is_none());
    other.stop().unwrap();
}

/// The words of OVS's that a switch of one process cannot follow are refused with a reason.
#[test]
fn what_cannot_be_done_is_refused() {
    require_netns!();
    require_programs!(program().as_str());
    let machine = Machine::new("refused");
    for (line, reason) in [
        ("force-reload-kmod", "belongs to the kernel"),
        ("start --db-file=/tmp/other.db", "sluiced names its database conf.db"),
        ("start --no-ovs-vswitchd", "unexpected argument"),
        ("bogus", "invalid value 'bogus'"),
    ] {
        let output = machine.ctl(&line.split(' ').collect::<Vec<_>>());
        assert!(!output.status.success() && output.stderr.contains(reason), "{line}: {output:?}");
    }
    std::fs::write(machine.run.join("conf.db"), "no database").unwrap();
    let check = machine.ctl(&["check"]);
    assert!(!check.status.success() && check.stderr.contains("conf.db"), "{check:?}");
}

/// The next message; empty if none comes.
fn heard(socket: &UnixDatagram) -> String {
    received_text(|bytes| socket.recv(bytes)).unwrap_or_default()
}

#[test]
fn a_service_manager_hears_of_the_daemon() {
    require_netns!();
    let netns = Netns::new("notify").unwrap();
    let spec = spec(&netns);
    let path = spec.run_directory().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let daemon = spec.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "100000").start().unwrap();
    let mut before = Vec::new();
    wait_for(LIMIT, "READY=1", || {
        before.push(heard(&socket));
        before.last().is_some_and(|text| text == "READY=1\n")
    })
    .unwrap();
    assert!(before[..before.len() - 1].iter().all(|text| text == "WATCHDOG=1\n"), "{before:?}");
    assert_eq!([heard(&socket), heard(&socket)], ["WATCHDOG=1\n", "WATCHDOG=1\n"]);
    let mut daemon = daemon;
    daemon.signal(Signal::TERM).unwrap();
    wait_for(LIMIT, "STOPPING=1", || heard(&socket) == "STOPPING=1\n").unwrap();
    daemon.wait(LIMIT).unwrap();
}
