//! [`Listeners`]: packets to these local addresses and tunnel ports are decapsulated.
//!
//! A rule exists for each address of each device and each tunnel port: destination MAC, no VLAN tag, destination IP, no
//! fragment, and the port's protocol. Lookups use the OpenFlow classifier, so their wildcards are those of OVS. If two
//! ports have the same protocol (`gre_sys`, `ip6gre_sys`), the first one gets the packets.

use classifier::{Classifier, ClsRule};
use flow::{DpPort, Flow, MacAddr, Mask, Match, PackedMatch, VlanTag, nw_frag};
use std::net::IpAddr;
use std::sync::Arc;

const ETH_TYPE_IPV4: u16 = 0x0800;
const ETH_TYPE_IPV6: u16 = 0x86dd;
const IP_PROTO_UDP: u8 = 17;
const IP_PROTO_GRE: u8 = 47;
/// IPv4 and IPv6 within IPv6, behind a routing header (RFC 8754).
const IP_PROTOS_SRV6: [u8; 2] = [4, 41];

/// Families of outer addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Families {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
    /// Both.
    Both,
}

/// Protocol that carries a tunnel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Carrier {
    /// UDP to this port: VXLAN, Geneve, GTP-U.
    Udp(u16),
    /// IP protocol 47: GRE and ERSPAN, over these families.
    Gre(Families),
    /// Segment routing, over IPv6 only.
    Srv6,
}

/// A datapath port of tunnels.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TunnelPort {
    /// Its name, such as `vxlan_sys_4789`.
    pub name: Arc<str>,
    /// Its number.
    pub number: DpPort,
    /// Its protocol.
    pub carrier: Carrier,
    /// Tunnels (interfaces) that share it.
    pub users: usize,
}

/// A device with addresses of this machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListeningDevice {
    /// Ethernet address.
    pub mac: MacAddr,
    /// IP addresses.
    pub addresses: Arc<[IpAddr]>,
}

/// Protocol and, with UDP, destination port of a rule.
type Protocol = (u8, Option<u16>);

impl Carrier {
    /// The protocols of its packets to an address of a family.
    fn protocols(self) -> impl Iterator<Item = Protocol> {
        let all = match self {
            Carrier::Udp(port) => [Some((IP_PROTO_UDP, Some(port))), None],
            Carrier::Gre(_) => [Some((IP_PROTO_GRE, None)), None],
            Carrier::Srv6 => IP_PROTOS_SRV6.map(|proto| Some((proto, None))),
        };
        all.into_iter().flatten()
    }

    fn is_over(self, ip: IpAddr) -> bool {
        match self {
            Carrier::Srv6 | Carrier::Gre(Families::V6) => ip.is_ipv6(),
            Carrier::Gre(Families::V4) => ip.is_ipv4(),
            Carrier::Udp(_) | Carrier::Gre(Families::Both) => true,
        }
    }
}

struct Rule {
    matching: PackedMatch,
    port: DpPort,
}

impl ClsRule for Rule {
    fn matching(&self) -> &PackedMatch {
        &self.matching
    }

    fn priority(&self) -> i32 {
        0
    }

    fn is_soft(&self) -> bool {
        false
    }
}

/// See the module. A clone is a snapshot.
#[derive(Clone)]
pub struct Listeners {
    rules: Classifier<Arc<Rule>>,
    devices: imbl::OrdMap<Arc<str>, ListeningDevice>,
    /// Devices with this MAC and IP address.
    addresses: imbl::OrdMap<(u64, IpAddr), usize>,
    /// Each address with its device.
    holders: imbl::OrdSet<(IpAddr, Arc<str>)>,
    tunnels: Arc<[TunnelPort]>,
}

impl Listeners {
    /// None. `seed` keys the hashes.
    pub fn new(seed: u64) -> Listeners {
        let mut rules = Classifier::new(seed);
        rules.set_prefix_fields(&[]);
        Listeners {
            rules,
            devices: imbl::OrdMap::new(),
            addresses: imbl::OrdMap::new(),
            holders: imbl::OrdSet::new(),
            tunnels: Arc::default(),
        }
    }

    /// The tunnel port whose packets this one is among. Adds to `mask` the bits that determine it.
    pub fn lookup(&self, flow: &Flow, mask: &mut Mask) -> Option<DpPort> {
        self.rules.lookup(flow, Some(mask)).map(|rule| rule.port)
    }

    /// The devices, by name.
    pub fn devices(&self) -> impl Iterator<Item = (&Arc<str>, &ListeningDevice)> {
        self.devices.iter()
    }

    /// A device, if it is one of them.
    pub fn device(&self, name: &str) -> Option<&ListeningDevice> {
        self.devices.get(name)
    }

    /// The devices with that address.
    pub fn holders(&self, ip: IpAddr) -> impl Iterator<Item = &Arc<str>> {
        let from_first = self.holders.range((ip, Arc::default())..);
        from_first.take_while(move |(address, _)| *address == ip).map(|(_, name)| name)
    }

    /// The tunnel ports, in the order given.
    pub fn tunnels(&self) -> &[TunnelPort] {
        &self.tunnels
    }

    /// Adds, changes or removes (`None`) a device. Returns whether anything changed.
    pub fn set_device(&mut self, name: &str, device: Option<ListeningDevice>) -> bool {
        let old = self.devices.get(name).cloned();
        if old == device {
            return false;
        }
        let keys = |device: &Option<ListeningDevice>| {
            let all = device.iter().flat_map(|d| d.addresses.iter().map(|ip| (d.mac.to_u64(), *ip)));
            all.collect::<Vec<_>>()
        };
        let ports = self.ports();
        for key in keys(&device) {
            let users = self.addresses.get(&key).copied().unwrap_or(0);
            self.addresses.insert(key, users + 1);
            if users == 0 {
                ports.iter().for_each(|port| self.insert(key, port));
            }
        }
        for key in keys(&old) {
            match self.addresses.get(&key).copied().unwrap_or(0) {
                2.. => {
                    self.addresses[&key] -= 1;
                }
                _ => {
                    self.addresses.remove(&key);
                    ports.iter().for_each(|port| self.remove(key, port.carrier));
                }
            }
        }
        let name: Arc<str> = name.into();
        for (_, ip) in keys(&old) {
            self.holders.remove(&(ip, name.clone()));
        }
        for (_, ip) in keys(&device) {
            self.holders.insert((ip, name.clone()));
        }
        match device {
            Some(device) => self.devices.insert(name, device),
            None => self.devices.remove(&name),
        };
        true
    }

    /// Sets the tunnel ports: the first one of each protocol gets its packets. Returns whether anything changed.
    pub fn set_tunnels(&mut self, tunnels: Vec<TunnelPort>) -> bool {
        if *self.tunnels == *tunnels {
            return false;
        }
        let old = self.ports();
        self.tunnels = tunnels.into();
        let new = self.ports();
        let among = |all: &[TunnelPort], p: &TunnelPort| {
            all.iter().any(|other| (other.carrier, other.number) == (p.carrier, p.number))
        };
        let keys: Vec<_> = self.addresses.keys().copied().collect();
        for port in old.iter().filter(|p| !among(&new, p)) {
            keys.iter().for_each(|key| self.remove(*key, port.carrier));
        }
        for port in new.iter().filter(|p| !among(&old, p)) {
            keys.iter().for_each(|key| self.insert(*key, port));
        }
        true
    }

    /// The first port of each protocol.
    fn ports(&self) -> Vec<TunnelPort> {
        let is_first = |(at, port): &(usize, &TunnelPort)| {
            !self.tunnels[..*at].iter().any(|before| before.carrier == port.carrier)
        };
        self.tunnels.iter().enumerate().filter(is_first).map(|(_, port)| port.clone()).collect()
    }

    fn insert(&mut self, (mac, ip): (u64, IpAddr), port: &TunnelPort) {
        for protocol in port.carrier.protocols().filter(|_| port.carrier.is_over(ip)) {
            let matching = self.rules.pack(&match_of(MacAddr::from_u64(mac), ip, protocol));
            self.rules.insert(Arc::new(Rule { matching, port: port.number }));
        }
    }

    fn remove(&mut self, (mac, ip): (u64, IpAddr), carrier: Carrier) {
        for protocol in carrier.protocols().filter(|_| carrier.is_over(ip)) {
            let matching = self.rules.pack(&match_of(MacAddr::from_u64(mac), ip, protocol));
            self.rules.remove(&matching, 0);
        }
    }

    /// Each rule: port, MAC, IP address and protocol, by port, protocol, device and address.
    pub(crate) fn list(&self) -> Vec<(TunnelPort, MacAddr, IpAddr, Protocol)> {
        let mut all = Vec::new();
        for port in self.ports() {
            for protocol in port.carrier.protocols() {
                let over = self.addresses.keys().filter(|(_, ip)| port.carrier.is_over(*ip));
                all.extend(over.map(|(mac, ip)| (port.clone(), MacAddr::from_u64(*mac), *ip, protocol)));
            }
        }
        all
    }
}

fn match_of(mac: MacAddr, ip: IpAddr, (proto, port): Protocol) -> Match {
    let (mut flow, mut mask) = (Flow::default(), Mask::none());
    let m = &mut mask.0;
    (flow.dl_dst, m.dl_dst) = (mac.0, [u8::MAX; 6]);
    m.vlans[0] = VlanTag { tpid: 0, tci: u16::MAX };
    m.dl_type = u16::MAX;
    match ip {
        IpAddr::V4(ip) => {
            flow.dl_type = ETH_TYPE_IPV4;
            (flow.nw_dst, m.nw_dst) = (ip.into(), u32::MAX);
        }
        IpAddr::V6(ip) => {
            flow.dl_type = ETH_TYPE_IPV6;
            (flow.ipv6_dst, m.ipv6_dst) = (ip.octets(), [u8::MAX; 16]);
        }
    }
    m.nw_frag = nw_frag::MASK;
    (flow.nw_proto, m.nw_proto) = (proto, u8::MAX);
    if let Some(port) = port {
        (flow.tp_dst, m.tp_dst) = (port, u16::MAX);
    }
    Match::new(&flow, &mask)
}
