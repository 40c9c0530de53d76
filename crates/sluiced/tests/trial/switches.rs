//! The two switches of the trial: Sluice and Debian's, each in dummy mode on a stopped clock, set up by the same commands.

use crate::rules::TABLES;
use crate::special;
use serde_json::{Value, json};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::{Daemon, DaemonSpec, Netns, patience, wait_for};

/// Timeout of a request.
const LIMIT: Duration = Duration::from_secs(20);

/// The bridges.
const BRIDGES: &str = "\
    add-br br0 -- set Bridge br0 datapath_type=dummy fail_mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow15 other_config:hwaddr=aa:55:aa:55:00:00 \
    -- add-br br1 -- set Bridge br1 datapath_type=dummy fail_mode=secure protocols=OpenFlow10,OpenFlow13,OpenFlow15 other_config:hwaddr=aa:55:aa:55:00:01 \
    -- add-port br0 x7 -- set Interface x7 type=patch options:peer=y7 ofport_request=7 \
    -- add-port br1 y7 -- set Interface y7 type=patch options:peer=x7 ofport_request=7 ";

/// The ports of both bridges beside the pair of patch ports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Layout {
    /// Plain ports, an access port, a trunk port, native ports.
    Ports,
    /// Bonds, mirrors to a port and to a VLAN, an 802.1Q tunnel.
    Services,
}

impl Layout {
    pub(crate) const ALL: [Layout; 2] = [Layout::Ports, Layout::Services];

    /// As the recording names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Ports => "ports",
            Layout::Services => "services",
        }
    }

    /// Commands of `ovs-vsctl` that add the ports, and those of `ovs-appctl` behind them.
    fn set_up(self, has_mirrors: bool) -> (String, &'static [&'static [&'static str]]) {
        match self {
            Layout::Ports => (PORTS.into(), &[]),
            Layout::Services => {
                let mirrors = if has_mirrors { MIRRORS } else { "" };
                (format!("{SERVICES} {mirrors}"), &[&["netdev-dummy/set-admin-state", "p9", "down"]])
            }
        }
    }
}

const PORTS: &str = "\
    -- add-port br0 p1 -- set Interface p1 type=dummy ofport_request=1 \
    -- add-port br0 p2 -- set Interface p2 type=dummy ofport_request=2 \
    -- add-port br0 p3 tag=10 -- set Interface p3 type=dummy ofport_request=3 \
    -- add-port br0 p4 trunks=10,20 -- set Interface p4 type=dummy ofport_request=4 \
    -- add-port br0 p5 tag=20 vlan_mode=native-untagged -- set Interface p5 type=dummy ofport_request=5 \
    -- add-port br0 p6 tag=10 vlan_mode=native-tagged -- set Interface p6 type=dummy ofport_request=6 \
    -- add-port br1 p8 -- set Interface p8 type=dummy ofport_request=8 \
    -- add-port br1 p9 tag=10 -- set Interface p9 type=dummy ofport_request=9";

/// Whether the stock switch mirrors as OVS 3.5. Debian's copies a packet that changes between two outputs once; since OVS 3.4
/// each form has its copy.
pub(crate) fn has_mirrors() -> bool {
    testkit::stock_root().is_some()
}

/// Only one member of the bond by addresses is up, since the switches choose members at random.
const SERVICES: &str = "\
    -- add-bond br0 b0 p1 p2 bond_mode=active-backup other_config:bond-primary=p1 \
    -- set Interface p1 type=dummy ofport_request=1 -- set Interface p2 type=dummy ofport_request=2 \
    -- add-port br0 p3 tag=10 vlan_mode=dot1q-tunnel cvlans=10,20 -- set Interface p3 type=dummy ofport_request=3 \
    -- add-port br0 p4 trunks=10,20 -- set Interface p4 type=dummy ofport_request=4 \
    -- add-port br0 p5 -- set Interface p5 type=dummy ofport_request=5 \
    -- add-port br0 p6 -- set Interface p6 type=dummy ofport_request=6 \
    -- add-bond br1 b1 p8 p9 bond_mode=balance-slb \
    -- set Interface p8 type=dummy ofport_request=8 -- set Interface p9 type=dummy ofport_request=9";

/// A bridge has one mirror: the order of several follows random UUIDs.
const MIRRORS: &str = "\
    -- --id=@p3 get Port p3 -- --id=@p4 get Port p4 -- --id=@p6 get Port p6 -- --id=@b0 get Port b0 \
    -- --id=@m0 create Mirror name=m0 select_src_port=@p4,@b0 select_dst_port=@p3,@b0 snaplen=100 output_port=@p6 \
    -- set Bridge br0 mirrors=@m0 \
    -- --id=@m1 create Mirror name=m1 select_all=true select_vlan=0,10 output_vlan=30 -- set Bridge br1 mirrors=@m1";

/// The maximum for a table of that release.
const PREFIXES: &str = "ip_dst,ip_src,ipv6_dst";

/// Whether a line describes a group, not a rule.
pub(crate) fn is_group(line: &str) -> bool {
    line.starts_with("group_id=")
}

/// A switch of the trial.
pub(crate) struct Switch {
    daemons: Vec<Daemon>,
    control: Control,
    _netns: Netns,
}

impl Switch {
    /// The switch under test.
    pub(crate) fn sluice(layout: Layout, has_mirrors: bool) -> Switch {
        let netns = Netns::new("trial").unwrap();
        let spec = DaemonSpec::new(env!("CARGO_BIN_EXE_sluiced")).unwrap().netns(&netns);
        let daemon = spec.args(["--disable-system", "-vconsole:off", "--enable-dummy"]).start().unwrap();
        Switch::set_up(netns, vec![daemon], layout.set_up(has_mirrors))
    }

    /// The stock switch with its own database server: that of [`testkit::stock_root`], else Debian's.
    pub(crate) fn stock(layout: Layout) -> Switch {
        let netns = Netns::new("trial").unwrap();
        let root = testkit::stock_root();
        let spec = |program: &Path| {
            let spec = DaemonSpec::new(program)?.netns(&netns);
            Ok(root.iter().fold(spec, |spec, root| spec.root(root)))
        };
        let daemons = testkit::start_stock(spec, "ovs-vswitchd", &[], [&[], &["--enable-dummy"]]).unwrap();
        Switch::set_up(netns, daemons, layout.set_up(has_mirrors()))
    }

    fn set_up(netns: Netns, daemons: Vec<Daemon>, (ports, commands): (String, &[&[&str]])) -> Switch {
        let daemon = &daemons[0];
        let socket = daemon.rundir().join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()));
        wait_for(LIMIT, "the control socket", || socket.exists()).unwrap();
        let words: Vec<&str> = BRIDGES.split_whitespace().chain(ports.split_whitespace()).collect();
        daemon.ovs("ovs-vsctl", &words).unwrap();
        for bridge in ["br0", "br1"] {
            set_prefixes(daemon, bridge);
            for (version, verb, argument) in special::SET_UP {
                daemon.ovs("ovs-ofctl", &["-O", version, verb, bridge, argument]).unwrap();
            }
        }
        let control = Control::connect(socket);
        let mut switch = Switch { daemons, control, _netns: netns };
        for command in commands {
            switch.ask(command);
        }
        switch.ask(&["time/stop"]);
        switch
    }

    /// Replaces all groups and rules of a bridge; returns the tool's error, if any.
    pub(crate) fn load(&self, bridge: &str, version: &str, lines: &[String]) -> Option<String> {
        let (groups, rules): (Vec<&String>, Vec<&String>) = lines.iter().partition(|line| is_group(line));
        self.send("add-flows", bridge, version, "delete\n", &[])
            .or_else(|| self.send("add-groups", bridge, version, "delete\n", &groups))
            .or_else(|| self.send("add-flows", bridge, version, "", &rules))
    }

    /// Replaces all rules of a bridge, not its groups; returns the tool's error, if any.
    pub(crate) fn load_rules(&self, bridge: &str, version: &str, rules: &[String]) -> Option<String> {
        self.send("add-flows", bridge, version, "delete\n", &rules.iter().collect::<Vec<_>>())
    }

    fn send(
        &self,
        verb: &str,
        bridge: &str,
        version: &str,
        first: &str,
        lines: &[&String],
    ) -> Option<String> {
        let text = lines.iter().fold(first.to_string(), |text, line| text + line + "\n");
        let tool = self.daemons[0].tool("ovs-ofctl");
        let out = tool.args(["-O", version, verb, bridge, "-"]).input(text).output().unwrap();
        // Log lines have times; a tool on a busy machine logs its delays.
        let lines: Vec<&str> = out.stderr.lines().filter(|l| !l.contains("|INFO|")).collect();
        let said: Vec<&str> = lines.iter().copied().filter(|l| !l.contains("|WARN|")).collect();
        (!out.status.success() || !lines.is_empty()).then(|| said.join("\n"))
    }

    /// A command that a daemon without a fault answers.
    fn ask(&mut self, words: &[&str]) {
        if let Err(gone) = self.control.ask(words) {
            panic!("{words:?}: {}", self.last_words(gone));
        }
    }

    /// Flushes learned addresses.
    pub(crate) fn forget(&mut self) {
        self.ask(&["fdb/flush"]);
    }

    /// Whether it still runs. A packet generated by `ofproto/trace` continues after its trace, and may end the
    /// daemon then.
    ///
    /// # Errors
    /// The daemon's last output, if it ended or is silent.
    pub(crate) fn is_alive(&mut self) -> Result<(), String> {
        let answer = self.control.ask(&["version"]);
        answer.map(drop).map_err(|gone| self.last_words(gone))
    }

    /// The log and the output of the daemon, which is gone, and its status.
    fn last_words(&mut self, gone: Gone) -> String {
        let daemon = &mut self.daemons[0];
        match gone {
            Gone::Ended => {
                let words = daemon.last_words().unwrap();
                format!("{words}\n{}", daemon.status().map(|status| status.to_string()).unwrap_or_default())
            }
            Gone::Silent => format!("{}\n{SILENT}", daemon.tail()),
        }
    }

    /// The trace of a packet, given the arguments of `ofproto/trace`.
    ///
    /// # Errors
    /// The daemon's last output, if the packet ended it, or if it is silent.
    pub(crate) fn trace(&mut self, packet: &[String]) -> Result<String, String> {
        let words: Vec<&str> =
            std::iter::once("ofproto/trace").chain(packet.iter().map(String::as_str)).collect();
        let answer = self.control.ask(&words);
        answer.map_err(|gone| self.last_words(gone))
    }
}

/// Sets equal prefixes on all tables of a bridge: the defaults of OVS changed after Debian's release.
fn set_prefixes(daemon: &Daemon, bridge: &str) {
    let tables = 0..=TABLES;
    let rows = tables.clone().map(|t| format!("--id=@t{t} create Flow_Table prefixes={PREFIXES} --"));
    let all: Vec<String> = tables.map(|t| format!("{t}=@t{t}")).collect();
    let line =
        format!("{} set Bridge {bridge} flow_tables={}", rows.collect::<Vec<_>>().join(" "), all.join(","));
    let words: Vec<&str> = line.split_whitespace().collect();
    daemon.ovs("ovs-vsctl", &words).unwrap();
}

/// The last line of a daemon that runs and does not answer.
pub(crate) const SILENT: &str = "no answer: the daemon runs and is silent";

/// A daemon without an answer.
enum Gone {
    Ended,
    /// It runs, and has not answered within [`LIMIT`].
    Silent,
}

impl Gone {
    fn by(e: &std::io::Error) -> Gone {
        match e.kind() {
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => Gone::Ended,
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Gone::Silent,
            _ => panic!("{e}"),
        }
    }
}

/// A connection to a control socket: JSON-RPC, one request after the other.
struct Control {
    stream: UnixStream,
    unread: Vec<u8>,
}

impl Control {
    fn connect(socket: PathBuf) -> Control {
        let stream = UnixStream::connect(socket).unwrap();
        stream.set_read_timeout(Some(patience(LIMIT))).unwrap();
        Control { stream, unread: Vec::new() }
    }

    /// The reply.
    fn ask(&mut self, words: &[&str]) -> Result<String, Gone> {
        let request = json!({"id": 0, "method": words[0], "params": words[1..]});
        if let Err(e) = self.stream.write_all(request.to_string().as_bytes()) {
            return Err(Gone::by(&e));
        }
        let reply = self.reply()?;
        let text = |v: &Value| v.as_str().map(str::to_string);
        Ok(text(&reply["result"]).or_else(|| text(&reply["error"])).unwrap_or_default())
    }

    fn reply(&mut self) -> Result<Value, Gone> {
        let mut chunk = [0; 1 << 16];
        loop {
            // A trace may have megabytes: only its end is worth a look at all of it.
            if self.unread.last() == Some(&b'}')
                && let Ok(value) = serde_json::from_slice(&self.unread)
            {
                self.unread.clear();
                return Ok(value);
            }
            let n = match self.stream.read(&mut chunk) {
                Ok(0) => return Err(Gone::Ended),
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(Gone::by(&e)),
            };
            self.unread.extend(&chunk[..n]);
        }
    }
}
