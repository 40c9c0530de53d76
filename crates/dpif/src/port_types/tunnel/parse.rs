//! Tunnel ports: parsing of their `Interface.options`.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use super::{
    Endpoint, ErspanOptions, FlowLabel, PacketTypes, TUNNEL_TTL, TunnelConfig, TunnelKey, TunnelKind,
    usual_packet_types,
};

/// Options by key.
type StringMap = BTreeMap<String, String>;

/// Most segments of segment routing.
const SRV6_SEGMENTS_MAX: usize = 6;
/// The keys that some kind reads.
pub(super) const KEYS: [&str; 20] = [
    "csum",
    "df_default",
    "dst_port",
    "egress_pkt_mark",
    "erspan_dir",
    "erspan_hwid",
    "erspan_idx",
    "erspan_ver",
    "exts",
    "in_key",
    "key",
    "local_ip",
    "out_key",
    "packet_type",
    "remote_ip",
    "seq",
    "srv6_flowlabel",
    "srv6_segs",
    "tos",
    "ttl",
];
/// Options that have `ovs-monitor-ipsec` encrypt a tunnel of the kernel.
const IPSEC: [&str; 6] = ["psk", "remote_cert", "remote_name", "certificate", "private_key", "use_ssl_cert"];

/// The ECN bits of the type of service, set by the switch itself.
const ECN_MASK: u8 = 3;

/// A tunnel, and notices about its ineffective options, by key; or the error for its row.
pub(super) fn parse(
    kind: TunnelKind,
    name: &str,
    options: &StringMap,
) -> Result<(TunnelConfig, Vec<(String, String)>), String> {
    let mut tunnel = TunnelConfig {
        kind,
        remote: Endpoint::Any,
        local: Endpoint::Any,
        in_key: key(kind, options, "in_key").map_err(|e| format!("{name}: {e}"))?,
        out_key: key(kind, options, "out_key").map_err(|e| format!("{name}: {e}"))?,
        tos: Some(0),
        ttl: Some(TUNNEL_TTL),
        dont_fragment: true,
        csum: false,
        seq: false,
        dst_port: kind.usual_port().unwrap_or(0),
        gbp: false,
        egress_pkt_mark: None,
        of_kind: Default::default(),
    };
    tunnel.of_kind.packet_types = usual_packet_types(kind);
    if kind.is_erspan() {
        tunnel.of_kind.erspan = erspan(options).map_err(|e| format!("{name}: {e}"))?;
    }
    let mut ignored = Vec::new();
    for (key, value) in options {
        match take(&mut tunnel, key, value) {
            Ok(()) => {}
            Err(Wrong::Refused(why)) => return Err(format!("{name}: {why}")),
            Err(Wrong::Ignored(why)) => ignored.push((key.clone(), format!("{name}: {why}"))),
        }
    }
    check_segments(&tunnel).map_err(|e| format!("{name}: {e}"))?;
    check_packet_types(&tunnel).map_err(|e| format!("{name}: {e}"))?;
    if tunnel.remote == Endpoint::Any {
        return Err(format!("{name}: {} type requires valid 'remote_ip' argument", kind.name()));
    }
    if tunnel.local == Endpoint::Flow && tunnel.remote != Endpoint::Flow {
        return Err(format!("{name}: {} type requires 'remote_ip=flow' with 'local_ip=flow'", kind.name()));
    }
    if let (Endpoint::Address(remote), Endpoint::Address(local)) = (tunnel.remote, tunnel.local)
        && remote.is_ipv4() != local.is_ipv4()
    {
        return Err(format!("{name}: remote_ip and local_ip are addresses of two families"));
    }
    Ok((tunnel, ignored))
}

/// Fault of an option.
enum Wrong {
    /// The tunnel is impossible.
    Refused(String),
    /// The option has no effect.
    Ignored(String),
}

/// Parses one option other than keys.
fn take(t: &mut TunnelConfig, key: &str, value: &str) -> Result<(), Wrong> {
    let ignored =
        |wanted: &str| Wrong::Ignored(format!("options:{key}={value} is not {wanted}: it has no effect"));
    match key {
        // An invalid one counts as missing.
        "remote_ip" => t.remote = endpoint(value).unwrap_or(Endpoint::Any),
        "local_ip" => {
            let bad = || Wrong::Refused(format!("bad {} 'local_ip'", t.kind.name()));
            t.local = endpoint(value).ok_or_else(bad)?;
        }
        "key" | "in_key" | "out_key" => {}
        "tos" | "ttl" if value == "inherit" => *(if key == "tos" { &mut t.tos } else { &mut t.ttl }) = None,
        "tos" => {
            let tos = number(value).and_then(|n| u8::try_from(n).ok()).filter(|tos| tos & ECN_MASK == 0);
            t.tos = Some(tos.ok_or_else(|| ignored("inherit or a multiple of 4 up to 252"))?);
        }
        "ttl" => {
            let ttl = number(value).and_then(|n| u8::try_from(n).ok()).filter(|ttl| *ttl > 0);
            t.ttl = Some(ttl.ok_or_else(|| ignored("inherit or from 1 to 255"))?);
        }
        "dst_port" if t.kind.usual_port().is_some() => {
            let port = number(value).and_then(|n| u16::try_from(n).ok()).filter(|port| *port > 0);
            let bad = || Wrong::Refused(format!("options:dst_port={value} is not a UDP port"));
            t.dst_port = port.ok_or_else(bad)?;
        }
        "erspan_ver" | "erspan_idx" | "erspan_dir" | "erspan_hwid" if t.kind.is_erspan() => {}
        "srv6_segs" if t.kind == TunnelKind::Srv6 => {
            let all: Result<Vec<Ipv6Addr>, _> = value.split(',').map(str::parse).collect();
            let bad = || Wrong::Refused(format!("bad srv6_segs '{value}': 1 to 6 IPv6 addresses expected"));
            t.of_kind.srv6.segments =
                all.ok().filter(|all| all.len() <= SRV6_SEGMENTS_MAX).ok_or_else(bad)?;
        }
        "srv6_flowlabel" if t.kind == TunnelKind::Srv6 => {
            let known = FlowLabel::ALL.into_iter().find(|label| label.name() == value);
            t.of_kind.srv6.flow_label = known.ok_or_else(|| {
                Wrong::Refused(format!("bad srv6_flowlabel '{value}': zero, copy or compute expected"))
            })?;
        }
        "csum" => t.csum = checksum(t.kind, value).map_err(ignored)?,
        "seq" if t.kind.is_gre() => t.seq = value == "true",
        "df_default" => t.dont_fragment = value == "true",
        // Sent in clear, packets would be at the mercy of the network.
        key if IPSEC.contains(&key) || key.starts_with("ipsec_") || key.starts_with("ike") => {
            return Err(Wrong::Refused(format!(
                "options:{key} asks for IPsec, which this version does not support: packets would not be encrypted"
            )));
        }
        "egress_pkt_mark" => {
            let mark = number(value).and_then(|n| u32::try_from(n).ok());
            t.egress_pkt_mark = Some(mark.ok_or_else(|| ignored("a number of 32 bits"))?);
        }
        "exts" if t.kind == TunnelKind::Vxlan => {
            let has = |name| value.split(',').any(|extension| extension == name);
            (t.gbp, t.of_kind.gpe) = (has("gbp"), has("gpe"));
            if value.split(',').any(|extension| !matches!(extension, "gbp" | "gpe")) {
                return Err(ignored("a list of gbp and gpe, of which each one known counts"));
            }
            if t.gbp && t.of_kind.gpe {
                return Err(ignored("one extension: headers with gpe have no place for gbp"));
            }
        }
        "packet_type" => {
            let known = PacketTypes::ALL.into_iter().find(|types| types.name() == value);
            t.of_kind.packet_types =
                known.ok_or_else(|| Wrong::Refused(format!("unknown packet_type '{value}'")))?;
        }
        _ => return Err(Wrong::Ignored(format!("unknown {} argument '{key}'", t.kind.name()))),
    }
    Ok(())
}

/// The option `csum` of a kind; the error names the values that have an effect.
fn checksum(kind: TunnelKind, value: &str) -> Result<bool, &'static str> {
    match kind {
        TunnelKind::Srv6 => Err("an option of srv6, whose header has no checksum"),
        TunnelKind::Gtpu if value != "true" => Err("true: headers of gtpu always have a checksum"),
        TunnelKind::Gtpu => Ok(false),
        TunnelKind::Erspan | TunnelKind::Ip6erspan => {
            Err("an option of erspan, whose header has no checksum")
        }
        TunnelKind::Vxlan | TunnelKind::Geneve | TunnelKind::Gre | TunnelKind::Ip6gre => Ok(value == "true"),
    }
}

/// Segment routing is over IPv6, and its first segment is the remote address.
fn check_segments(t: &TunnelConfig) -> Result<(), String> {
    if t.kind != TunnelKind::Srv6 {
        return Ok(());
    }
    match (t.remote, t.of_kind.srv6.segments.first()) {
        (Endpoint::Address(IpAddr::V4(_)), _) => Err("srv6 needs an IPv6 address as remote_ip".into()),
        (Endpoint::Address(IpAddr::V6(remote)), Some(first)) if remote != *first => {
            Err(format!("the first of srv6_segs is {first}, which is not remote_ip"))
        }
        _ => Ok(()),
    }
}

/// As in OVS: GTP-U and segment routing carry packets without Ethernet alone, GRE and VXLAN-GPE carry all, others carry frames alone.
fn check_packet_types(t: &TunnelConfig) -> Result<(), String> {
    let (frames, bare) = match t.kind {
        TunnelKind::Gtpu | TunnelKind::Srv6 => (false, true),
        TunnelKind::Gre => (true, true),
        TunnelKind::Vxlan => (true, t.of_kind.gpe),
        TunnelKind::Geneve | TunnelKind::Ip6gre | TunnelKind::Erspan | TunnelKind::Ip6erspan => (true, false),
    };
    let (lacks, layer) = match t.of_kind.packet_types {
        PacketTypes::Frames => (!frames, "L2"),
        PacketTypes::Bare => (!bare, "L3"),
        PacketTypes::Any => (false, ""),
    };
    if !lacks {
        return Ok(());
    }
    let name = if t.kind == TunnelKind::Vxlan { "VXLAN (without GPE)" } else { t.kind.name() };
    let mode = t.of_kind.packet_types.name();
    Err(format!("{mode} configured on {name} tunnel that cannot carry {layer} traffic"))
}

/// The fields of ERSPAN headers: index and hardware id are hexadecimal, with or without a prefix. A version `flow` leaves
/// all to the rules; a tunnel without one only receives.
fn erspan(options: &StringMap) -> Result<ErspanOptions, String> {
    let field = |name: &str, what: &str, base: u32, max: u32| -> Result<Option<u32>, String> {
        let Some(text) = options.get(name) else { return Ok(Some(0)) };
        if text == "flow" {
            return Ok(None);
        }
        let digits = text.strip_prefix("0x").filter(|_| base == 16).unwrap_or(text);
        let value = u32::from_str_radix(digits, base).ok().filter(|value| *value <= max);
        value.map(Some).ok_or_else(|| format!("invalid erspan {what}: {text}"))
    };
    let ver = field("erspan_ver", "version", 10, 2)?;
    if let (Some(0), Some(text)) = (ver, options.get("erspan_ver")) {
        return Err(format!("invalid erspan version: {text}"));
    }
    let small = |value: Option<u32>| value.map(|value| value as u8);
    Ok(ErspanOptions {
        ver: small(ver),
        idx: field("erspan_idx", "index", 16, 0xf_ffff)?,
        dir: small(field("erspan_dir", "direction", 10, 1)?),
        hwid: small(field("erspan_hwid", "hardware ID", 16, 0x3f)?),
    })
}

/// The key of one or both directions.
fn key(kind: TunnelKind, options: &StringMap, name: &str) -> Result<TunnelKey, String> {
    let Some(text) = options.get(name).or_else(|| options.get("key")) else { return Ok(TunnelKey::None) };
    if text == "flow" {
        return Ok(TunnelKey::Flow);
    }
    let id = number(text).ok_or_else(|| format!("options:{name}={text} is neither a number nor flow"))?;
    let bits = match kind {
        TunnelKind::Gre | TunnelKind::Ip6gre | TunnelKind::Gtpu => 32,
        TunnelKind::Vxlan | TunnelKind::Geneve => 24,
        TunnelKind::Erspan | TunnelKind::Ip6erspan => 10,
        // Its headers have none.
        TunnelKind::Srv6 => 0,
    };
    if id >> bits != 0 {
        return Err(format!("options:{name}={text}: keys of {} have {bits} bits", kind.name()));
    }
    Ok(TunnelKey::Value(id))
}

/// A host address, or `flow`. Names are not resolved.
fn endpoint(text: &str) -> Option<Endpoint> {
    if text == "flow" {
        return Some(Endpoint::Flow);
    }
    let address: IpAddr = text.parse().ok()?;
    let usable = !address.is_unspecified() && !address.is_multicast();
    usable.then_some(Endpoint::Address(address))
}

/// A decimal number, or a hexadecimal one with prefix `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
