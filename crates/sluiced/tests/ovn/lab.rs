//! A deployment of OVN: northd with both databases, chassis with one switch and one `ovn-controller` each, an underlay, and
//! machines on the chassis.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testkit::{
    Cmd, Daemon, DaemonSpec, Netns, Output, RunDir, TempDir, patience, start_stock_with, veth, wait_for,
};

/// Timeout of what OVN does in the background.
pub(crate) const LIMIT: Duration = Duration::from_secs(40);
/// The programs of all probes.
pub(crate) const PROGRAMS: [&str; 9] = [
    "ovn-northd",
    "ovn-controller",
    "ovn-nbctl",
    "ovn-sbctl",
    "ovsdb-server",
    "ovsdb-tool",
    "ovs-vsctl",
    "ovs-ofctl",
    "ovs-appctl",
];
/// Bytes of an inner packet that fit into an underlay of 1500 bytes.
const INNER_MTU: u32 = 1400;

/// Whether bridges use the kernel's datapath (`SLUICE_DATAPATH=kernel`, in a guest), not that in user space.
pub(crate) fn on_kernel() -> bool {
    std::env::var_os("SLUICE_DATAPATH").is_some_and(|v| v == "kernel")
}

/// The type of bridges.
fn datapath_type() -> &'static str {
    if on_kernel() { "system" } else { "netdev" }
}

/// Options of a switch that limit its datapaths.
fn datapaths() -> &'static [&'static str] {
    if on_kernel() { &[] } else { &["--disable-system"] }
}

/// Whether datapath actions encapsulate packets for another chassis.
pub(crate) fn encapsulates(actions: &str) -> bool {
    match on_kernel() {
        true => actions.contains("set(tunnel("),
        false => actions.contains("tnl_push(") && actions.contains("geneve("),
    }
}

/// Returns from the test, with a line `SKIP: …`, if OVN is not installed.
macro_rules! require_ovn {
    () => {
        let test = std::thread::current();
        if !testkit::programs_or_skip(test.name().unwrap_or(module_path!()), &$crate::lab::PROGRAMS) {
            return;
        }
    };
}
pub(crate) use require_ovn;

/// The switch of all chassis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Sluice.
    Sluice,
    /// Debian's Open vSwitch.
    Stock,
}

/// A namespace with one switch and one `ovn-controller`.
pub(crate) struct Chassis {
    kind: Kind,
    /// Its name in OVN.
    pub(crate) name: String,
    pub(crate) netns: Netns,
    pub(crate) run: RunDir,
    /// The device of the underlay.
    uplink: String,
    controller: Option<Daemon>,
    /// The switch, and for the stock one its database server.
    switch: Vec<Daemon>,
}

/// A machine: a namespace with one interface.
pub(crate) struct Machine {
    pub(crate) netns: Netns,
    pub(crate) dev: String,
    /// The other end, on its chassis.
    pub(crate) port: String,
    /// Address without length.
    pub(crate) ip: String,
    pub(crate) ip6: String,
    pub(crate) mac: String,
}

/// The deployment.
pub(crate) struct Lab {
    pub(crate) kind: Kind,
    pub(crate) chassis: Vec<Chassis>,
    underlay: Netns,
    outside: Option<Netns>,
    central: RunDir,
    _central_daemons: Vec<Daemon>,
}

/// Splits a line into words; single quotes hold one together.
pub(crate) fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quoted) = (Vec::new(), None::<String>, false);
    for c in line.chars() {
        match c {
            '\'' => {
                quoted = !quoted;
                word.get_or_insert_default();
            }
            c if c.is_whitespace() && !quoted => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// The root file system of another release of OVN (`SLUICE_OVN_ROOT`).
fn ovn_root() -> Option<PathBuf> {
    std::env::var_os("SLUICE_OVN_ROOT").map(PathBuf::from)
}

/// A program of OVN as a command line: the installed one, or that of the other release with its own libraries.
fn program(name: &str) -> Vec<OsString> {
    let Some(root) = ovn_root() else { return vec![name.into()] };
    let folders = ["usr/bin", "usr/sbin"].map(|folder| root.join(folder).join(name));
    let program = folders.into_iter().find(|path| path.exists());
    let program = program.unwrap_or_else(|| panic!("{} has no {name}", root.display()));
    let libraries = root.join("usr/lib/x86_64-linux-gnu");
    let loader = root.join("usr/lib64/ld-linux-x86-64.so.2");
    vec![loader.into(), "--library-path".into(), libraries.into(), program.into()]
}

/// A tool of OVN.
fn tool(name: &str) -> Cmd {
    let line = program(name);
    Cmd::new(&line[0]).args(&line[1..])
}

/// A daemon of OVN with its directories.
fn ovn(name: &str, run: &RunDir) -> DaemonSpec {
    let line = program(name);
    let spec = DaemonSpec::new(&line[0]).unwrap().args(&line[1..]).rundir(run);
    ["OVN_RUNDIR", "OVN_LOGDIR", "OVN_DBDIR"].iter().fold(spec, |spec, name| spec.env(*name, run.path()))
}

/// A bridge of the kernel that joins the chassis.
fn bridge(tag: &str) -> Netns {
    let netns = Netns::new(tag).unwrap();
    netns.ip("link add name joint type bridge mcast_snooping 0").unwrap();
    netns.up("joint").unwrap();
    netns
}

/// Joins a namespace to such a bridge; returns the device there.
fn join(netns: &Netns, bridge: &Netns) -> String {
    let (here, there) = veth(netns, bridge).unwrap();
    bridge.ip(&format!("link set dev {there} master joint")).unwrap();
    bridge.up(&there).unwrap();
    netns.ip(&format!("link set dev {here} addrgenmode none")).unwrap();
    netns.up(&here).unwrap();
    here
}

impl Lab {
    /// A deployment with that number of chassis and a router `r`.
    pub(crate) fn new(kind: Kind, chassis: usize) -> Lab {
        let central = RunDir::new("central").unwrap();
        for side in ["nb", "sb"] {
            let root = ovn_root().unwrap_or_else(|| PathBuf::from("/"));
            let schema = root.join(format!("usr/share/ovn/ovn-{side}.ovsschema"));
            let db = central.join(&format!("{side}.db"));
            tool("ovsdb-tool").arg("create").arg(db).arg(schema).run().unwrap();
        }
        let databases = ["nb.db", "sb.db"].map(|name| central.join(name).into_os_string());
        let server = ovn("ovsdb-server", &central)
            .args(databases)
            .args([format!("--remote=p{}", central.db()), "-vconsole:off".into(), "--log-file".into()])
            .ready_file("db.sock")
            .start()
            .unwrap();
        let northd = ovn("ovn-northd", &central)
            .args([format!("--ovnnb-db={0}", central.db()), format!("--ovnsb-db={0}", central.db())])
            .args(["-vconsole:off", "--log-file"])
            .start()
            .unwrap();
        let mut lab = Lab {
            kind,
            chassis: Vec::new(),
            underlay: bridge("underlay"),
            outside: None,
            central,
            _central_daemons: vec![northd, server],
        };
        lab.nb("init -- lr-add r");
        for number in 1..=chassis {
            let chassis = Chassis::new(kind, number, &lab);
            lab.chassis.push(chassis);
        }
        lab.sync();
        lab
    }

    fn central(&self, name: &str, line: &str) -> Output {
        let run = &self.central;
        let cmd = tool(name).arg(format!("--db={}", run.db()));
        cmd.limit(patience(LIMIT * 2)).env("OVN_RUNDIR", run.path()).args(words(line)).run().unwrap()
    }

    /// Runs `ovn-nbctl` with the words of a line.
    pub(crate) fn nb(&self, line: &str) -> String {
        self.central("ovn-nbctl", line).stdout.trim_end().to_string()
    }

    /// Whether the northbound database has a table: newer releases of OVN have more.
    pub(crate) fn nb_has(&self, table: &str) -> bool {
        let run = &self.central;
        let cmd = tool("ovn-nbctl").arg(format!("--db={}", run.db())).env("OVN_RUNDIR", run.path());
        cmd.args(["list", table]).output().unwrap().status.success()
    }

    /// Runs a command, and waits until all chassis have the change.
    pub(crate) fn apply(&self, line: &str) {
        self.nb(&format!("--wait=hv {line}"));
    }

    /// Runs `ovn-sbctl`.
    pub(crate) fn sb(&self, line: &str) -> String {
        self.central("ovn-sbctl", line).stdout.trim_end().to_string()
    }

    /// Runs `ovn-trace` for a datapath.
    pub(crate) fn trace(&self, datapath: &str, flow: &str) -> String {
        self.central("ovn-trace", &format!("--summary {datapath} '{flow}'")).stdout
    }

    /// Waits until all chassis have all changes.
    pub(crate) fn sync(&self) {
        self.apply("sync");
    }

    /// Pings until the first chassis has flows that encapsulate; returns them.
    pub(crate) fn wait_for_encapsulation(&self, from: &Machine, to: &str) -> String {
        let mut flows = String::new();
        wait_for(LIMIT, "flows that encapsulate", || {
            // Idle ones have ended.
            from.can_ping(to);
            flows = self.chassis[0].appctl("dpctl/dump-flows");
            encapsulates(&flows)
        })
        .unwrap_or_else(|why| panic!("{why:#}: {flows}"));
        flows
    }

    /// A logical switch `n<net>` with 10.net.0.0/24 and fd0<net>::/64, connected to the router.
    pub(crate) fn network(&self, net: u8) {
        self.nb(&format!(
            "ls-add n{net} -- lrp-add r r-n{net} 0a:00:00:00:0{net}:01 10.{net}.0.1/24 fd0{net}::1/64 \
             -- lsp-add n{net} n{net}-r -- lsp-set-type n{net}-r router -- lsp-set-addresses n{net}-r router \
             -- lsp-set-options n{net}-r router-port=r-n{net}"
        ));
    }

    /// A machine on a chassis with a port `n<net>h<host>` of the network: 10.net.0.host and fd0<net>::host.
    pub(crate) fn machine(&self, chassis: usize, net: u8, host: u8) -> Machine {
        self.nb(&format!(
            "lsp-add n{net} n{net}h{host} \
             -- lsp-set-addresses n{net}h{host} '0a:00:00:00:0{net}:{host:02} 10.{net}.0.{host} fd0{net}::{host}'"
        ));
        let machine = self.bare_machine(chassis, net, host);
        machine.configure(net);
        machine
    }

    /// Such a machine without the logical port, and without addresses on its interface.
    pub(crate) fn bare_machine(&self, chassis: usize, net: u8, host: u8) -> Machine {
        let chassis = &self.chassis[chassis];
        let netns = Netns::new(&format!("n{net}h{host}")).unwrap();
        let (dev, port) = veth(&netns, &chassis.netns).unwrap();
        let mac = format!("0a:00:00:00:0{net}:{host:02}");
        netns.ip(&format!("link set dev {dev} address {mac} mtu {INNER_MTU}")).unwrap();
        chassis.netns.ip(&format!("link set dev {port} addrgenmode none up")).unwrap();
        let machine = Machine {
            netns,
            dev,
            port,
            ip: format!("10.{net}.0.{host}"),
            ip6: format!("fd0{net}::{host}"),
            mac,
        };
        self.finish_checksums(&machine);
        chassis.plug(&machine, &format!("n{net}h{host}"));
        machine
    }

    /// Debian's userspace datapath forwards unfinished checksums as they are.
    fn finish_checksums(&self, machine: &Machine) {
        if self.kind == Kind::Stock {
            machine.netns.set_offloads(&machine.dev, false).unwrap();
        }
    }

    /// A bridge `br-ex` on each chassis, joined outside, and mapped to the physical network `phys`.
    pub(crate) fn provider(&mut self) {
        let outside = bridge("outside");
        for chassis in &self.chassis {
            let dev = join(&chassis.netns, &outside);
            chassis.vsctl(&format!(
                "add-br br-ex -- set Bridge br-ex datapath_type={} -- add-port br-ex {dev} \
                 -- set Open_vSwitch . external_ids:ovn-bridge-mappings=phys:br-ex",
                datapath_type()
            ));
        }
        self.outside = Some(outside);
    }

    /// A machine outside, with an address and its length.
    pub(crate) fn outsider(&self, host: u8, address: &str) -> Machine {
        let netns = Netns::new(&format!("out{host}")).unwrap();
        let dev = join(&netns, self.outside.as_ref().expect("provider() was called"));
        let mac = format!("0a:00:00:00:99:{host:02}");
        netns.ip(&format!("link set dev {dev} address {mac}")).unwrap();
        netns.add_addr(&dev, address).unwrap();
        let ip = address.split('/').next().unwrap_or(address).to_string();
        let machine = Machine { netns, dev, port: String::new(), ip, ip6: String::new(), mac };
        self.finish_checksums(&machine);
        machine
    }
}

impl Machine {
    /// Gives the interface its addresses and routes of the network.
    pub(crate) fn configure(&self, net: u8) {
        let (netns, dev) = (&self.netns, &self.dev);
        netns.up(dev).unwrap();
        netns.add_addr(dev, &format!("{}/24", self.ip)).unwrap();
        netns.add_addr(dev, &format!("{}/64", self.ip6)).unwrap();
        netns.ip(&format!("route add default via 10.{net}.0.1")).unwrap();
        netns.ip(&format!("-6 route add default via fd0{net}::1 dev {dev}")).unwrap();
    }

    /// Waits until an address answers.
    pub(crate) fn reaches(&self, address: &str) {
        testkit::reachable(&self.netns, address.parse().unwrap(), LIMIT).unwrap();
    }

    /// Whether an address answers one of two pings.
    pub(crate) fn can_ping(&self, address: &str) -> bool {
        testkit::ping(&self.netns, address.parse().unwrap(), 2).unwrap().received > 0
    }
}

impl Chassis {
    fn new(kind: Kind, number: usize, lab: &Lab) -> Chassis {
        let name = format!("hv{number}");
        let netns = Netns::new(&name).unwrap();
        // Else the kernel answers for br-phy's address by the uplink too.
        netns.run("sysctl", &["-q", "-w", "net.ipv4.conf.all.arp_ignore=1"]).unwrap();
        let run = RunDir::new(&name).unwrap();
        let uplink = join(&netns, &lab.underlay);
        let mut chassis = Chassis { kind, name, netns, run, uplink, controller: None, switch: Vec::new() };
        chassis.start_switch();
        if !on_kernel() {
            chassis.vsctl(&format!(
                "add-br br-phy -- set Bridge br-phy datapath_type=netdev -- add-port br-phy {}",
                chassis.uplink
            ));
        }
        chassis.address_underlay(number);
        chassis.vsctl(&format!(
            "set Open_vSwitch . external_ids:system-id={0} external_ids:hostname={0} external_ids:ovn-remote={1} \
             external_ids:ovn-encap-type=geneve external_ids:ovn-encap-ip=172.16.0.{number} \
             external_ids:ovn-bridge-datapath-type={2}",
            chassis.name,
            lab.central.db(),
            datapath_type()
        ));
        chassis.start_controller();
        chassis
    }

    /// Gives the device of the underlay its address. In user space it is that of a bridge, and ends with the switch.
    pub(crate) fn address_underlay(&self, number: usize) {
        let (netns, address) = (&self.netns, format!("172.16.0.{number}/24"));
        let device = if on_kernel() { self.uplink.as_str() } else { "br-phy" };
        wait_for(LIMIT, "the device of the underlay with its address", || {
            let _exists_or_not_yet = netns.add_addr(device, &address);
            netns.up(device).is_ok()
                && netns.ip(&format!("addr show dev {device} up")).is_ok_and(|shown| shown.contains(&address))
        })
        .unwrap();
    }

    /// Starts the switch with the database that the run directory has, if any.
    pub(crate) fn start_switch(&mut self) {
        let spec = |program: &Path| Ok(DaemonSpec::new(program)?.netns(&self.netns).rundir(&self.run));
        self.switch = match self.kind {
            Kind::Sluice => {
                let spec = spec(Path::new(env!("CARGO_BIN_EXE_sluiced"))).unwrap();
                let spec = spec.args(["--pidfile", "--log-file", "-vconsole:off"]).args(datapaths().to_vec());
                let daemon = spec.start().unwrap();
                let socket = self.run.join(&format!("ovs-vswitchd.{}.ctl", daemon.pid()));
                wait_for(LIMIT, "the control socket", || socket.exists()).unwrap();
                vec![daemon]
            }
            Kind::Stock => {
                let args = [&[][..], &[&["--pidfile", "--log-file"], datapaths()].concat()];
                start_stock_with(spec, "ovs-vswitchd", &[], args).unwrap()
            }
        };
    }

    /// Kills the switch and starts it again; the database of the stock one runs on.
    pub(crate) fn crash_switch(&mut self) {
        self.switch.remove(0).crash().unwrap();
        self.restart_switch();
    }

    fn restart_switch(&mut self) {
        match self.kind {
            Kind::Sluice => self.start_switch(),
            Kind::Stock => self.start_beside_database(Kind::Stock),
        }
    }

    /// Ends the stock switch and starts another on its database.
    pub(crate) fn replace_switch(&mut self, kind: Kind) {
        self.appctl("exit");
        self.switch.remove(0).wait(LIMIT).unwrap();
        self.start_beside_database(kind);
    }

    /// Kills the switch and the controller, as a machine without power does.
    pub(crate) fn halt(&mut self) {
        self.controller.take().expect("it runs").crash().unwrap();
        self.switch.remove(0).crash().unwrap();
    }

    /// Starts both again, on the chassis of this number.
    pub(crate) fn revive(&mut self, number: usize) {
        self.restart_switch();
        self.address_underlay(number);
        self.start_controller();
    }

    fn start_beside_database(&mut self, kind: Kind) {
        let program = match kind {
            Kind::Sluice => env!("CARGO_BIN_EXE_sluiced"),
            Kind::Stock => "ovs-vswitchd",
        };
        let spec = DaemonSpec::new(program).unwrap().netns(&self.netns).rundir(&self.run);
        let spec = spec.args([self.run.db()]).args(["-vconsole:off", "--pidfile", "--log-file"]);
        self.switch.insert(0, spec.args(datapaths().to_vec()).start().unwrap());
    }

    fn start_controller(&mut self) {
        let spec = ovn("ovn-controller", &self.run).netns(&self.netns);
        let args = [self.run.db(), "--pidfile".into(), "--log-file".into(), "-vconsole:off".into()];
        self.controller = Some(spec.args(args).start().unwrap());
    }

    /// Ends `ovn-controller`, which leaves the flows, and starts it again.
    pub(crate) fn restart_controller(&mut self) {
        self.ovn_appctl("exit --restart");
        let controller = self.controller.take().expect("started with the chassis");
        controller.wait(LIMIT).unwrap();
        self.start_controller();
    }

    /// Runs `ovn-appctl` for the controller.
    pub(crate) fn ovn_appctl(&self, line: &str) -> String {
        let cmd = tool("ovn-appctl").env("OVN_RUNDIR", self.run.path());
        cmd.args(["-t", "ovn-controller"]).args(words(line)).run().unwrap().stdout
    }

    fn tool(&self, tool: &str, line: &str) -> String {
        let tool = self.run.tool(tool, Some(&self.netns)).limit(patience(LIMIT * 2));
        let out = tool.args(words(line)).run().unwrap();
        out.stdout.trim_end().to_string()
    }

    /// The program `sluice`, built beside the daemon, for the switch.
    pub(crate) fn sluice(&self) -> Cmd {
        let program = Path::new(env!("CARGO_BIN_EXE_sluiced")).with_file_name("sluice");
        self.run.tool(program.to_str().unwrap(), Some(&self.netns))
    }

    /// Runs `ovs-vsctl` with the words of a line.
    pub(crate) fn vsctl(&self, line: &str) -> String {
        self.tool("ovs-vsctl", line)
    }

    /// Runs `ovs-appctl` for the switch.
    pub(crate) fn appctl(&self, line: &str) -> String {
        self.tool("ovs-appctl", line)
    }

    /// Runs `ovs-ofctl` with the version of OVN.
    pub(crate) fn ofctl(&self, line: &str) -> String {
        self.tool("ovs-ofctl", &format!("-OOpenFlow15 {line}"))
    }

    /// The log of `ovn-controller`.
    pub(crate) fn controller_log(&self) -> String {
        std::fs::read_to_string(self.run.join("ovn-controller.log")).unwrap_or_default()
    }

    /// Connects a machine's port as a logical port.
    pub(crate) fn plug(&self, machine: &Machine, logical: &str) {
        let port = &machine.port;
        self.vsctl(&format!(
            "--may-exist add-port br-int {port} -- set Interface {port} external_ids:iface-id={logical}"
        ));
    }

    /// Waits until OVN has installed the flows of a machine's port.
    pub(crate) fn wait_installed(&self, machine: &Machine) {
        let condition = format!("Interface {} external_ids:ovn-installed=true", machine.port);
        let limit = patience(LIMIT).as_secs();
        self.tool("ovs-vsctl", &format!("--timeout={limit} wait-until {condition}"));
    }
}

/// A folder for files of a probe.
pub(crate) fn folder() -> TempDir {
    TempDir::new("ovn").unwrap()
}
