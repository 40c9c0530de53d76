//! Entry points for fuzzing: any bytes in, no panic out.

use crate::genl::Family;
use crate::message::answers;
use crate::ovs::{self, RawUpcall};
use crate::socket::{Asked, MessageWriter, flag};
use dpif::cookie::{parse_cookie, write_cookie};
use dpif::nlactions::parse_actions;
use dpif::text::{ConnectionFormat, write_connection};
use flow::nlattr::Attrs;

/// Reads a datagram of the kernel: its messages, and errors for a request.
pub fn messages(bytes: &[u8]) {
    let asked = Asked::once("do something", crate::genl::ATTRIBUTES);
    let mut request = MessageWriter::new(16, [3, 2], flag::CREATE, &[0; 4], asked);
    request.attrs.text(2, "ovs_flow");
    request.attrs.nested(7, |out| out.u8(1, 1));
    let Ok(request) = request.finish() else { unreachable!("it is short") };
    let mut total = 0;
    for answer in answers(bytes) {
        total += answer.body.len() + crate::message::HEADER_BYTES;
        if let Err(e) = request.result(&answer) {
            assert!(e.to_string().starts_with("cannot do something: "));
        }
        let _number = answer.done_errno();
    }
    assert!(total <= bytes.len());
}

/// Reads a message as an upcall with its contents.
pub fn upcall(bytes: &[u8]) {
    let Ok(upcall) = RawUpcall::parse(bytes) else { return };
    for limit in 0..3 {
        let _key = upcall.flow_key(limit);
    }
    if let Ok(Some(info)) = upcall.cookie() {
        assert_eq!(parse_cookie(&write_cookie(&info)).map(|again| again.cookie), Ok(info.cookie));
    }
    let _actions = upcall.actions.map(parse_actions);
    assert!(upcall.packet.len() + upcall.key.len() <= bytes.len());
}

/// Reads a flow after the netlink header.
pub fn flow_reply(bytes: &[u8]) {
    let Some(flow) = ovs::fuzz_flow(bytes) else { return };
    for limit in 0..3 {
        if let Ok((key, mask, _)) = flow.key_and_mask(limit) {
            assert!(mask.base.shape == u16::MAX && key.present_blocks().count() > 0);
        }
    }
    let _actions = flow.dp_actions();
}

/// Reads a connection after the netlink header; it has a line of text.
pub fn connection(bytes: &[u8]) {
    let Some(connection) = crate::conntrack::fuzz_connection(bytes) else { return };
    for (verbose, statistics) in [(false, false), (true, true)] {
        let mut line = String::new();
        let format = ConnectionFormat { verbose, statistics };
        write_connection(&mut line, &connection, format, &|ns| ns.to_string());
        assert!(line.contains(",orig=(src=") && line.contains(",reply=(src="));
    }
}

/// Reads a timeout policy after the netlink header.
pub fn timeout_policy(bytes: &[u8]) {
    let Some((id, policy)) = crate::conntrack::fuzz_policy(bytes) else { return };
    assert!(id.0.get() > 0 && policy.iter().count() <= dpif::TimeoutAttr::ALL.len());
}

/// Reads datapaths, ports, meters, limits and families, selected by the first byte.
pub fn told(bytes: &[u8]) {
    let Some((which, body)) = bytes.split_first() else { return };
    if which % 5 == 4 {
        if let Ok(family) = Family::parse(body.get(4..).unwrap_or(&[])) {
            assert!(family.group("").is_none_or(|_| family.groups.iter().any(|(name, _)| name.is_empty())));
        }
        return;
    }
    ovs::fuzz_messages(which % 5, body);
    let _attrs = Attrs::parse(body);
}

#[cfg(test)]
mod tests;
