//! Devices: a veth pair for each port, with one end at the switch and one in an unnamed namespace, which
//! vanishes with this process however it ends, and removes the pairs.

use std::collections::HashMap;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use sys::frames::{FrameReceiver, FrameSender, device_index};
use sys::netns::NetNs;

use crate::probe::{SINK_MAC, filter, source_mac};

/// Receive buffer: space for some 80,000 probes.
const BUFFER_BYTES: u32 = 64 << 20;
/// Maximum time for the kernel to remove thousands of devices.
const GONE_LIMIT: Duration = Duration::from_secs(120);

/// Exit of packets from the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// The bridge's own device, on the switch's side.
    Local,
    /// One more veth pair, whose far end is with the senders.
    Sink,
}

/// The kernel's counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Frames received.
    pub rx_packets: u64,
    /// Frames that it was to send and dropped.
    pub tx_dropped: u64,
}

/// Reads the text of `/proc/net/dev`.
fn parse_counters(text: &str) -> HashMap<String, DeviceCounters> {
    let one = |line: &str| {
        let (name, numbers) = line.split_once(':')?;
        let numbers: Vec<u64> = numbers.split_whitespace().map_while(|n| n.parse().ok()).collect();
        let counters = DeviceCounters { rx_packets: *numbers.get(1)?, tx_dropped: *numbers.get(11)? };
        Some((name.trim().to_string(), counters))
    };
    text.lines().filter_map(one).collect()
}

fn counters_here() -> Result<HashMap<String, DeviceCounters>> {
    // Not /proc/net: that is the namespace of the main thread.
    Ok(parse_counters(&std::fs::read_to_string("/proc/thread-self/net/dev")?))
}

/// Runs `ip` with commands, one per line, in the calling thread's namespace.
fn ip_batch(commands: &str) -> Result<()> {
    let mut child = Command::new("ip")
        .args(["-batch", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        // This program handles Ctrl-C: it cleans up.
        .process_group(0)
        .spawn()
        .context("cannot run ip (iproute2)")?;
    let fed = child.stdin.take().map_or(Ok(()), |mut pipe| pipe.write_all(commands.as_bytes()));
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let text = String::from_utf8_lossy(&output.stderr);
        let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given");
        let number = text.lines().filter_map(|l| l.strip_prefix("Command failed -:")).next();
        let at =
            number.and_then(|n| n.trim().parse::<usize>().ok()).and_then(|n| commands.lines().nth(n - 1));
        bail!("ip {}: {line}", at.unwrap_or("-batch"));
    }
    fed.context("cannot write to ip")
}

fn mac_text(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Prefix of device names of this process, `ub` and its id in base 36: at most seven characters.
pub fn process_tag() -> String {
    let mut number = std::process::id();
    let mut digits = Vec::new();
    loop {
        digits.push(char::from_digit(number % 36, 36).unwrap_or('0'));
        number /= 36;
        if number == 0 {
            return format!("ub{}", digits.iter().rev().collect::<String>());
        }
    }
}

/// Whether a device of this name exists in this program's namespace.
///
/// # Errors
/// Without `/proc`.
pub fn device_exists(name: &str) -> Result<bool> {
    Ok(counters_here()?.contains_key(name))
}

/// Disables IPv6 on a device, or with `default` on all future ones in the calling thread's namespace.
fn disable_ipv6(device: &str) {
    // Absent in a kernel without IPv6.
    let _silent_already = std::fs::write(format!("/proc/sys/net/ipv6/conf/{device}/disable_ipv6"), "1");
}

/// The devices of a run.
pub struct Devices {
    hosts: NetNs,
    sender: FrameSender,
    /// The ends at the switch.
    pub ports: Vec<String>,
    indexes: Vec<u32>,
    bridge: String,
    exit: Exit,
}

impl Devices {
    /// Creates `count` pairs, up, for the future bridge `bridge`.
    ///
    /// # Errors
    /// Without permission; if a name is in use; if `ip` fails.
    pub fn new(count: u16, bridge: &str, exit: Exit) -> Result<Devices> {
        let needs = "root is needed (CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_NET_RAW)";
        let hosts = NetNs::new().with_context(|| format!("cannot make a network namespace: {needs}"))?;
        let here = NetNs::current()?;
        let tag = process_tag();
        let name = |number: &dyn std::fmt::Display| format!("{tag}_{number}");
        let mut ports: Vec<String> = (0..count).map(|number| name(&number)).collect();
        if exit == Exit::Sink {
            ports.push(name(&"x"));
        }
        let mut born = String::from("link set lo up\n");
        let mut up = String::new();
        for (number, port) in ports.iter().enumerate() {
            let (host, mac) = if number == usize::from(count) {
                ("sink".to_string(), SINK_MAC)
            } else {
                (format!("h{number}"), source_mac(number as u16))
            };
            let (mac, netns) = (mac_text(mac), here.path());
            born += &format!("link add name {host} address {mac} type veth peer name {port} netns {netns}\n");
            born += &format!("link set dev {host} addrgenmode none up\n");
            up += &format!("link set dev {port} addrgenmode none up\n");
        }
        let made = hosts.run(|| -> Result<(FrameSender, Vec<u32>)> {
            disable_ipv6("default");
            ip_batch(&born)?;
            let index = |number| device_index(&format!("h{number}")).context("a device is gone");
            let indexes = (0..count).map(index).collect::<Result<Vec<u32>>>()?;
            let sender = FrameSender::new().with_context(|| format!("cannot send frames: {needs}"))?;
            Ok((sender, indexes))
        })?;
        let (sender, indexes) = made.context("cannot create the devices")?;
        ip_batch(&up).context("cannot bring the devices up")?;
        Ok(Devices { hosts, sender, ports, indexes, bridge: bridge.into(), exit })
    }

    /// Creates a Linux bridge with these ends: without learning and flooding, all frames go to the last one.
    ///
    /// # Errors
    /// If the name is in use, or `ip` fails.
    pub fn create_linux_bridge(&self) -> Result<()> {
        let bridge = &self.bridge;
        ip_batch(&format!("link add name {bridge} type bridge mcast_snooping 0 stp_state 0\n"))?;
        disable_ipv6(bridge);
        let mut commands = String::new();
        for port in &self.ports {
            commands += &format!("link set dev {port} master {bridge}\n");
            commands +=
                &format!("link set dev {port} type bridge_slave learning off flood off mcast_flood off\n");
        }
        commands += &format!("link set dev {bridge} addrgenmode none up\n");
        ip_batch(&commands)?;
        let sink = self.ports.last().context("no port")?;
        let words = ["fdb", "add", &mac_text(SINK_MAC), "dev", sink, "master", "static"];
        let output = Command::new("bridge").args(words).output().context("cannot run bridge (iproute2)")?;
        let text = String::from_utf8_lossy(&output.stderr);
        if output.status.success() {
            Ok(())
        } else {
            Err(anyhow!("bridge {}: {}", words.join(" "), text.trim()))
        }
    }

    /// Removes a Linux bridge.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn remove_linux_bridge(bridge: &str) -> Result<()> {
        ip_batch(&format!("link delete dev {bridge} type bridge\n"))
    }

    /// Brings up the bridge's own device, created by the switch.
    ///
    /// # Errors
    /// If it does not exist.
    pub fn bring_local_up(&self) -> Result<()> {
        disable_ipv6(&self.bridge);
        ip_batch(&format!("link set dev {} addrgenmode none up\n", self.bridge)).with_context(|| {
            let bridge = &self.bridge;
            format!("the bridge's device {bridge} is not here; this program has to run in the switch's network namespace")
        })
    }

    /// The sender.
    pub fn sender(&self) -> &FrameSender {
        &self.sender
    }

    /// By port, the index of the device to send by.
    pub fn indexes(&self) -> &[u32] {
        &self.indexes
    }

    /// Listens at the exit of the switch to all frames but the load of ports other than `port`.
    ///
    /// # Errors
    /// If the device is gone.
    pub fn receiver(&self, port: u16) -> Result<FrameReceiver> {
        let listen = |device: &str| FrameReceiver::new(device_index(device)?, &filter(port), BUFFER_BYTES);
        match self.exit {
            Exit::Local => listen(&self.bridge),
            Exit::Sink => self.hosts.run(|| listen("sink"))?,
        }
        .context("cannot capture packets that leave the switch")
    }

    /// The kernel's counters at the exit of the switch, and at port `port`.
    ///
    /// # Errors
    /// If a device is gone.
    pub fn counters(&self, port: usize) -> Result<(DeviceCounters, DeviceCounters)> {
        let hosts = self.hosts.run(counters_here)??;
        let of = |all: &HashMap<String, DeviceCounters>, name: &str| {
            all.get(name).copied().with_context(|| format!("the device {name} is gone"))
        };
        let exit = match self.exit {
            Exit::Local => of(&counters_here()?, &self.bridge)?,
            Exit::Sink => of(&hosts, "sink")?,
        };
        Ok((exit, of(&hosts, &format!("h{port}"))?))
    }

    /// Drops the namespace and waits until the ends at the switch are gone.
    ///
    /// # Errors
    /// If they still exist after two minutes.
    pub fn remove(self) -> Result<()> {
        let Devices { hosts, sender, ports, .. } = self;
        drop((hosts, sender));
        let begin = Instant::now();
        loop {
            let all = counters_here()?;
            let left = ports.iter().filter(|port| all.contains_key(*port)).count();
            if left == 0 {
                return Ok(());
            }
            if begin.elapsed() > GONE_LIMIT {
                bail!("{left} devices are still there, such as {}", ports[0]);
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_devices() {
        let text = "Inter-|   Receive                 |  Transmit\n face |bytes packets errs drop\n\
                    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n br-ub1:10 20 0 0 0 0 0 0 1 1 0 7 0 0 0 0\n bad: 1 2\n";
        let all = parse_counters(text);
        assert_eq!(all.len(), 2);
        assert_eq!(all["lo"], DeviceCounters { rx_packets: 2, tx_dropped: 12 });
        assert_eq!(all["br-ub1"], DeviceCounters { rx_packets: 20, tx_dropped: 7 });
    }

    #[test]
    fn addresses_are_text() {
        assert_eq!(mac_text([2, 0x5b, 0, 0xff, 0xff, 0xfe]), "02:5b:00:ff:ff:fe");
    }
}
