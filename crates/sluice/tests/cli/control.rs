//! `sluice ofctl monitor` as a daemon beside `ovs-ofctl monitor`: control socket, monitor process, user, syslog.

use std::net::UdpSocket;
use std::path::Path;
use std::time::Duration;

use testkit::{Cmd, require_netns, require_programs, wait_for};

use crate::ofctl::{Stock, plain};

const WAIT: Duration = Duration::from_secs(20);

/// A monitor in the background, of either tool.
struct Monitor<'s> {
    stock: &'s Stock,
    name: &'static str,
}

impl<'s> Monitor<'s> {
    fn start(stock: &'s Stock, name: &'static str, is_ours: bool, options: &str) -> Monitor<'s> {
        let file = |suffix: &str| stock.dir.join(&format!("{name}.{suffix}")).display().to_string();
        let line = format!(
            "monitor br0 --detach --no-chdir --pidfile={} --unixctl={} {options}",
            file("pid"),
            file("ctl")
        );
        let out = if is_ours { stock.ours(&line, "") } else { stock.theirs(&line, "") };
        assert!(out.status.success(), "{line}: {}", out.stderr);
        Monitor { stock, name }
    }

    fn file(&self, suffix: &str) -> String {
        self.stock.dir.join(&format!("{}.{suffix}", self.name)).display().to_string()
    }

    /// Exit code, output and first line of the errors of a command.
    fn call(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let target = self.file("ctl");
        let tool =
            self.stock.dir.tool("ovs-appctl", None).args(["--timeout=60", "-t", &target]).limit(WAIT * 6);
        let out = tool.args(args).output().unwrap();
        let fault = out.stderr.lines().next().unwrap_or_default().replace(self.name, "NAME");
        (out.status.code(), out.stdout, fault)
    }

    fn pid(&self) -> String {
        std::fs::read_to_string(self.file("pid")).unwrap_or_default().trim().to_string()
    }

    fn signal(&self, signal: &str) {
        assert!(Cmd::new("kill").args([signal, &self.pid()]).run().is_ok());
    }

    /// Waits until neither pid file nor socket is left.
    fn await_end(&self) {
        let (pidfile, socket) = (self.file("pid"), self.file("ctl"));
        let gone = || !Path::new(&pidfile).exists() && !Path::new(&socket).exists();
        wait_for(WAIT, "the end of the monitor", gone).unwrap();
    }
}

#[test]
fn a_monitor_takes_the_commands_of_ovs_ofctl() {
    require_programs!("ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let (ours, theirs) =
        (Monitor::start(&stock, "ours", true, ""), Monitor::start(&stock, "theirs", false, ""));
    let file = stock.dir.join("output").display().to_string();
    let packet = "in_port=1 packet=50540000000550540000000608004500 actions=drop";
    let commands: &[&[&str]] = &[
        &["ofctl/set-output-file", &file],
        &["ofctl/barrier"],
        &["ofctl/send", "01020008000000aa"],
        &["ofctl/barrier"],
        // A reply that a switch does not expect, and a request of an unknown type.
        &["ofctl/send", "0113000800000077", "01 63 00 08 00 00 00 78"],
        &["ofctl/barrier"],
        &["ofctl/send", "01"],
        &["ofctl/send", "zz"],
        &["ofctl/send", ""],
        &["ofctl/send", "0102000900000001"],
        &["ofctl/send"],
        &["ofctl/packet-out", packet],
        &["ofctl/barrier"],
        &["ofctl/block"],
        &["ofctl/block"],
        &["ofctl/send", "0102000800000055"],
        &["ofctl/unblock"],
        &["ofctl/unblock"],
        &["ofctl/barrier"],
        &["ofctl/set-output-file"],
        &["ofctl/set-output-file", "/nonexistent/x"],
        &["vlog/set", "bogus"],
        &["bogus"],
        &["exit", "now"],
        &["exit"],
    ];
    let mut told = Vec::new();
    for monitor in [&ours, &theirs] {
        let answers: Vec<_> = commands.iter().map(|args| (*args, monitor.call(args))).collect();
        monitor.await_end();
        told.push((answers, plain(&std::fs::read_to_string(&file).unwrap())));
    }
    assert!(told[1].1.len() > 8, "{told:?}");
    assert_eq!(told[0], told[1]);
}

#[test]
fn a_blocked_monitor_answers_one_barrier_later() {
    require_programs!("ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let ours = Monitor::start(&stock, "ours", true, "");
    assert_eq!(ours.call(&["ofctl/block"]).0, Some(0));
    // The later of two barriers at once is refused, the other waits until the monitor reads again.
    std::thread::scope(|scope| {
        let barriers = [0, 1].map(|_| scope.spawn(|| ours.call(&["ofctl/barrier"])));
        wait_for(WAIT, "the end of one barrier", || barriers.iter().any(|b| b.is_finished())).unwrap();
        assert_eq!(ours.call(&["ofctl/send", "0102000800000055"]).0, Some(0));
        assert!(barriers.iter().any(|b| !b.is_finished()));
        assert_eq!(ours.call(&["ofctl/unblock"]).0, Some(0));
        let mut answers = barriers.map(|b| b.join().unwrap());
        answers.sort();
        let refused = "already waiting for barrier reply".to_string();
        assert_eq!(answers, [(Some(0), String::new(), String::new()), (Some(2), String::new(), refused)]);
    });
    let (_, list, _) = ours.call(&["list-commands"]);
    let theirs = Monitor::start(&stock, "theirs", false, "");
    for line in theirs.call(&["list-commands"]).1.lines().filter(|line| !line.contains("coverage/")) {
        assert!(list.lines().any(|ours| ours.trim_end() == line.trim_end()), "{line} in {list}");
    }
    theirs.call(&["exit"]);
    assert!(ours.call(&["version"]).1.starts_with("ovs-ofctl "));
    ours.signal("-TERM");
    ours.await_end();
}

#[test]
fn a_snoop_has_a_control_socket() {
    require_programs!("ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    // Without a controller there is nothing to snoop on.
    stock.dir.ovs("ovs-vsctl", &["set-controller", "br0", "tcp:127.0.0.1:1"]).unwrap();
    let started = || {
        let line = "snoop br0 --detach --no-chdir --pidfile --unixctl=snoop.ctl";
        stock.ours(line, "").status.success()
    };
    wait_for(WAIT, "the snoop socket", started).unwrap();
    let call = |args: &[&str]| {
        let target = stock.dir.join("snoop.ctl").display().to_string();
        stock.dir.tool("ovs-appctl", None).args(["-t", &target]).args(args).output().unwrap()
    };
    let out = call(&["ofctl/send", "0102000800000055"]);
    assert!(out.stderr.starts_with("snoop: the switch takes no messages"), "{}", out.stderr);
    assert!(call(&["exit"]).status.success());
    let socket = stock.dir.join("snoop.ctl");
    wait_for(WAIT, "its end", || !socket.exists()).unwrap();
}

#[test]
fn control_sockets_have_names() {
    require_programs!("ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let line = "monitor br0 --detach --no-chdir --pidfile";
    assert!(stock.ours(line, "").status.success());
    // By the pid file, as any daemon.
    let call = |command: &str| {
        stock.dir.tool("ovs-appctl", None).args(["-t", "ovs-ofctl", command]).output().unwrap()
    };
    assert!(call("version").stdout.starts_with("ovs-ofctl "));
    assert!(call("exit").status.success());
    wait_for(WAIT, "its end", || !stock.dir.join("ovs-ofctl.pid").exists()).unwrap();
    let refused = stock.ours("monitor br0 --unixctl=/nonexistent/a.ctl", "");
    assert_eq!(refused.status.code(), Some(1));
    assert!(
        refused.stderr.contains("/nonexistent/a.ctl: cannot listen for control connections"),
        "{}",
        refused.stderr
    );
    assert!(stock.ours(&format!("{line} --unixctl=none"), "").status.success());
    let sockets = || {
        let names = std::fs::read_dir(stock.dir.path()).unwrap().flatten().map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().starts_with("ovs-ofctl.")).count()
    };
    assert_eq!(sockets(), 1, "the pid file alone");
    let pid = std::fs::read_to_string(stock.dir.join("ovs-ofctl.pid")).unwrap();
    assert!(Cmd::new("kill").args([pid.trim()]).run().is_ok());
    wait_for(WAIT, "its end", || sockets() == 0).unwrap();
}

#[test]
fn a_monitor_process_starts_a_monitor_anew() {
    require_programs!("ovs-ofctl", "ovs-appctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let ours = Monitor::start(&stock, "ours", true, "--monitor");
    let first = ours.pid();
    ours.signal("-ABRT");
    wait_for(WAIT, "another process", || {
        let now = ours.pid();
        !now.is_empty() && now != first && ours.call(&["version"]).0 == Some(0)
    })
    .unwrap();
    ours.signal("-TERM");
    ours.await_end();
    // The option has no effect on a command that does not last.
    assert!(stock.ours("show br0 --monitor", "").status.success());
}

#[test]
fn commands_run_as_another_user() {
    require_netns!();
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    assert!(stock.ours("show br0 --user=root", "").status.success());
    for (line, fault) in [
        ("show br0 --user=nobody", "Permission denied"),
        ("show br0 --user no-such-user", "there is no user no-such-user"),
        ("show br0 --user=:no-such-group", "there is no group no-such-group"),
    ] {
        let (ours, theirs) = (stock.ours(line, ""), stock.theirs(line, ""));
        assert_eq!((ours.status.code(), theirs.status.code()), (Some(1), Some(1)), "{line}");
        assert!(ours.stderr.contains(fault), "{line}: {}", ours.stderr);
    }
}

#[test]
fn log_lines_go_to_syslog_daemons() {
    require_programs!("ovs-ofctl", "ovs-vswitchd", "ovsdb-server", "ovsdb-tool", "ovs-vsctl");
    let stock = Stock::start();
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(WAIT)).unwrap();
    let address = udp.local_addr().unwrap();
    let first_line = || {
        let mut buffer = vec![0; 65536];
        let length = udp.recv(&mut buffer).unwrap();
        let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
        // The rest of this run is not of interest.
        udp.set_nonblocking(true).unwrap();
        while udp.recv(&mut buffer).is_ok() {}
        udp.set_nonblocking(false).unwrap();
        text
    };
    for (option, begin) in [
        (format!("--syslog-method=udp:{address}"), "<31>ovs|00001|vconn|DBG|"),
        (format!("--syslog-method null --syslog-target={address}"), "<135>1 2"),
    ] {
        for is_ours in [true, false] {
            let line = format!("{option} -vvconn:syslog:dbg -vvlog:off show br0");
            let out = if is_ours { stock.ours(&line, "") } else { stock.theirs(&line, "") };
            assert!(out.status.success(), "{line}: {}", out.stderr);
            let text = first_line();
            assert!(text.starts_with(begin), "{is_ours} {line}: {text}");
            if begin.ends_with('2') {
                assert!(text.contains(" ovs-ofctl ") && text.contains(" vconn - \u{feff}"), "{text}");
            }
        }
    }
    for (line, fault) in [
        ("--syslog-method=bogus show br0", "unsupported syslog method 'bogus'"),
        ("--syslog-target=1.2 show br0", "give IP:PORT"),
        ("show br0 --syslog-method", "option '--syslog-method' requires an argument"),
    ] {
        let out = stock.ours(line, "");
        assert!(out.status.code() == Some(1) && out.stderr.contains(fault), "{line}: {}", out.stderr);
    }
    // A socket that is not there loses lines, not commands.
    assert!(
        stock.ours("--syslog-method=unix:/nonexistent show br0 --no-self-confinement", "").status.success()
    );
}
