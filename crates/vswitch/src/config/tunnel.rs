//! Tunnel ports: what `Interface.options` say of one.

use std::net::IpAddr;

use ofproto::tunnel::{Endpoint, TunnelConfig, TunnelKey, TunnelKind};

use super::StringMap;

/// Two bits of the type of service that the switch sets itself.
const ECN_MASK: u8 = 3;

/// A tunnel, and what of its options is told and has no effect; or the error for its row.
pub(super) fn parse(
    kind: TunnelKind,
    name: &str,
    options: &StringMap,
) -> Result<(TunnelConfig, Vec<String>), String> {
    let mut ignored = Vec::new();
    let mut c = TunnelConfig {
        kind,
        remote: Endpoint::Any,
        local: Endpoint::Any,
        in_key: TunnelKey::None,
        out_key: TunnelKey::None,
        tos: Some(0),
        ttl: Some(ofproto::tunnel::TUNNEL_TTL),
        dont_fragment: true,
        csum: false,
        dst_port: kind.usual_port().unwrap_or(0),
        gbp: false,
        egress_pkt_mark: None,
    };
    let mut remote = None;
    for (key, value) in options {
        let mut bad = |wanted: &str| {
            ignored.push(format!("{name}: options:{key}={value} is not {wanted}: it has no effect"));
        };
        match key.as_str() {
            "remote_ip" => remote = Some(value.as_str()),
            "local_ip" => match endpoint(value) {
                Some(local) => c.local = local,
                None => return Err(format!("{name}: bad {} 'local_ip'", kind.name())),
            },
            "key" | "in_key" | "out_key" => {}
            "tos" => match (value.as_str(), number(value)) {
                ("inherit", _) => c.tos = None,
                (_, Some(tos)) if tos <= 0xff && tos as u8 & ECN_MASK == 0 => c.tos = Some(tos as u8),
                _ => bad("inherit or a multiple of 4 up to 252"),
            },
            "ttl" => match (value.as_str(), number(value)) {
                ("inherit", _) => c.ttl = None,
                (_, Some(ttl)) if (1..=0xff).contains(&ttl) => c.ttl = Some(ttl as u8),
                _ => bad("inherit or from 1 to 255"),
            },
            "dst_port" if kind.usual_port().is_some() => match number(value) {
                Some(port) if (1..=0xffff).contains(&port) => c.dst_port = port as u16,
                _ => return Err(format!("{name}: options:dst_port={value} is not a UDP port")),
            },
            "csum" => c.csum = value == "true",
            "df_default" => c.dont_fragment = value == "true",
            "egress_pkt_mark" => match number(value).and_then(|n| u32::try_from(n).ok()) {
                Some(mark) => c.egress_pkt_mark = Some(mark),
                None => bad("a number of 32 bits"),
            },
            "exts" if kind == TunnelKind::Vxlan => {
                for extension in value.split(',') {
                    match extension {
                        "gbp" => c.gbp = true,
                        _ => bad("gbp, the one extension that is supported in this version"),
                    }
                }
            }
            // Frames inside, which is the default.
            "packet_type" if value == "legacy_l2" => {}
            "packet_type" => {
                return Err(format!("{name}: packet_type {value} is not supported in this version"));
            }
            _ => ignored.push(format!("{name}: unknown {} argument '{key}'", kind.name())),
        }
    }
    let key = |name: &str| options.get(name).or_else(|| options.get("key")).map(String::as_str);
    for (which, place) in [("in_key", &mut c.in_key), ("out_key", &mut c.out_key)] {
        *place = match key(which) {
            None => TunnelKey::None,
            Some("flow") => TunnelKey::Flow,
            Some(text) => TunnelKey::Value(
                number(text)
                    .ok_or_else(|| format!("{name}: options:{which}={text} is neither a number nor flow"))?,
            ),
        };
    }
    c.remote = match remote.and_then(endpoint) {
        Some(remote) => remote,
        None => return Err(format!("{name}: {} type requires valid 'remote_ip' argument", kind.name())),
    };
    if let (Endpoint::Address(remote), Endpoint::Address(local)) = (c.remote, c.local)
        && remote.is_ipv4() != local.is_ipv4()
    {
        return Err(format!("{name}: remote_ip and local_ip are addresses of two families"));
    }
    if kind != TunnelKind::Gre
        && [c.in_key, c.out_key].iter().any(|k| matches!(k, TunnelKey::Value(n) if *n >> 24 != 0))
        || [c.in_key, c.out_key].iter().any(|k| matches!(k, TunnelKey::Value(n) if *n >> 32 != 0))
    {
        let bits = if kind == TunnelKind::Gre { 32 } else { 24 };
        return Err(format!("{name}: keys of {} have {bits} bits", kind.name()));
    }
    Ok((c, ignored))
}

/// An address that a host may have, or `flow`. Names are not looked up.
fn endpoint(text: &str) -> Option<Endpoint> {
    if text == "flow" {
        return Some(Endpoint::Flow);
    }
    let address: IpAddr = text.parse().ok()?;
    let usable = !address.is_unspecified() && !address.is_multicast();
    usable.then_some(Endpoint::Address(address))
}

/// A decimal number, or a hexadecimal one behind `0x`.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

#[cfg(test)]
mod tests;
