//! `monitor` and `snoop`: the messages of a switch as they come, on standard error as `ovs-ofctl` prints them.
//!
//! Memory is bounded by one message. Echo requests of the switch are answered; paused packets are resumed.

use std::io::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};
use flow::text::token::Tokens;
use flow::text::{parse_match, parse_port};
use flow::{OfPort, TableId};
use openflow::msg::flow_monitor::{FlowMonitorRequest, MonitorCommand, MonitorFlags};
use openflow::text::{Printing, format_message};
use openflow::{Format, GROUP_ANY, Message, Multi, Options as Wire, Version, decode_with};

use super::background::Process;
use super::connection::{self, Frames, Names};
use super::options::Options;
use super::{Run, switch};
use crate::hint::hint;
use crate::remote::{Deadline, print};

/// `OFPC_INVALID_TTL_TO_CONTROLLER`.
const INVALID_TTL: u16 = 4;
/// Types of messages.
const HELLO: u8 = 0;
const ECHO_REQUEST: u8 = 2;
const ECHO_REPLY: u8 = 3;
/// Keywords of `watch:` besides fields.
const FLAGS: [(&str, MonitorFlags); 6] = [
    ("!initial", MonitorFlags::INITIAL),
    ("!add", MonitorFlags::ADD),
    ("!delete", MonitorFlags::DELETE),
    ("!modify", MonitorFlags::MODIFY),
    ("!actions", MonitorFlags::ACTIONS),
    ("!own", MonitorFlags::OWN),
];

/// `[!initial,][!add,]...[table=N,][out_port=PORT,][out_group=ID,][MATCH]`.
fn parse_watch(text: &str, names: &Names) -> Result<FlowMonitorRequest> {
    let mut request = FlowMonitorRequest {
        id: 0,
        command: MonitorCommand::Add,
        flags: MonitorFlags::all(),
        out_port: OfPort::NONE,
        out_group: GROUP_ANY,
        table: TableId::ALL,
        matching: Box::default(),
    };
    let mut fields = Vec::new();
    let mut tokens = Tokens::new(text);
    while let Some(token) = tokens.next_token().map_err(|e| anyhow!("{text}: {}", e.message()))? {
        let bad = || anyhow!("{text}: {}: invalid value of {}", token.value, token.key);
        match token.key {
            key if key.starts_with('!') => {
                let Some((_, flag)) = FLAGS.iter().find(|(name, _)| *name == key) else {
                    bail!("{text}: {key}: unknown keyword{}", hint(key, FLAGS.iter().map(|(name, _)| *name)));
                };
                request.flags.remove(*flag);
            }
            "table" => request.table = TableId(token.value.parse().map_err(|_| bad())?),
            "out_port" => request.out_port = parse_port(token.value, names).ok_or_else(bad)?,
            "out_group" => request.out_group = token.value.parse().map_err(|_| bad())?,
            key if token.has_value() => fields.push(format!("{key}={}", token.value)),
            key => fields.push(key.to_string()),
        }
    }
    *request.matching = parse_match(&fields.join(","), names).map_err(|error| anyhow!("{text}: {error}"))?;
    Ok(request)
}

/// Arguments of `monitor`.
#[derive(Default)]
pub(super) struct Asked {
    miss_send_len_bytes: Option<u16>,
    invalid_ttl: bool,
    pub(super) monitors: Vec<FlowMonitorRequest>,
}

/// The arguments behind the bridge.
pub(super) fn parse(args: &[String], names: &Names) -> Result<Asked> {
    let mut asked = Asked::default();
    for arg in args {
        if arg.starts_with(|c: char| c.is_ascii_digit()) {
            let length = arg.parse().map_err(|_| anyhow!("{arg}: not a length of packets (0 to 65535)"))?;
            asked.miss_send_len_bytes = Some(length);
        } else if arg == "invalid_ttl" {
            asked.invalid_ttl = true;
        } else if let Some(text) = arg.strip_prefix("watch:") {
            asked.monitors.push(parse_watch(text, names)?);
        } else {
            let meant = hint(arg, ["invalid_ttl", "watch:"]);
            bail!("{arg}: unsupported \"monitor\" argument{meant}");
        }
    }
    Ok(asked)
}

/// The first form of packet-ins that the switch takes.
fn set_packet_in_format(run: &mut Run<'_>) -> Result<()> {
    if let Some(format) = run.options.packet_in {
        return run.connection.carry_out(&[Message::SetPacketInFormat(format)]);
    }
    // A switch without Nicira's forms sends those of the standard.
    let _taken = [2, 1, 0]
        .into_iter()
        .find(|format| run.connection.carry_out(&[Message::SetPacketInFormat(*format)]).is_ok());
    Ok(())
}

pub(super) fn monitor(options: &Options, args: &[String], process: &mut Process) -> Result<String> {
    let run = &mut Run::open(options, &args[0], "monitor")?;
    let asked = parse(&args[1..], &run.names)?;
    if asked.miss_send_len_bytes.is_some() || asked.invalid_ttl {
        let mut wanted = switch::config(&mut run.connection)?;
        if let Some(length) = asked.miss_send_len_bytes {
            wanted.miss_send_len_bytes = length;
        }
        if asked.invalid_ttl {
            if run.connection.version() >= Version::V13 {
                bail!("OpenFlow 1.3 and later has no invalid_ttl");
            }
            wanted.flags |= INVALID_TTL;
        }
        run.connection.carry_out(&[Message::SetConfig(wanted)])?;
    }
    for monitor in asked.monitors {
        let request = Message::FlowMonitorRequest(Multi::all(vec![monitor]));
        if run.options.more > 0 {
            let bytes =
                openflow::encode_with(&request, run.connection.version(), 0, run.connection.options());
            print(&run.text(&bytes.unwrap_or_default(), 2));
        }
        print(&run.dump(&request)?);
    }
    set_packet_in_format(run)?;
    let wire = run.connection.options().clone();
    let printer = Printer { options: run.options, wire: &wire, names: &run.names };
    let version = run.connection.version();
    let mut frames = run.connection.take_frames()?;
    process.ready()?;
    while let Some(frame) = frames.next()? {
        printer.show(&frame)?;
        answer(&mut frames, &frame, version, &wire)?;
    }
    bail!("the switch closed the connection");
}

/// Answers an echo request, and resumes a paused packet.
fn answer(frames: &mut Frames<'_>, frame: &[u8], version: Version, wire: &Wire) -> Result<()> {
    if frame.len() >= 8 && frame[1] == ECHO_REQUEST {
        let mut reply = frame.to_vec();
        reply[1] = ECHO_REPLY;
        return frames.send(&reply);
    }
    let Ok((_, _, Message::PacketIn(packet))) = decode_with(frame, wire) else { return Ok(()) };
    if packet.format != Format::Nxt2 || packet.continuation.is_empty() {
        return Ok(());
    }
    let bytes = openflow::encode_with(&Message::Resume(packet), version, 0, wire);
    frames.send(&bytes.map_err(|error| anyhow!("a paused packet cannot be resumed: {error}"))?)
}

struct Printer<'a> {
    options: &'a Options,
    wire: &'a Wire,
    names: &'a Names,
}

impl Printer<'_> {
    fn show(&self, frame: &[u8]) -> Result<()> {
        let verbosity = self.options.more.saturating_add(2);
        let how = Printing { options: self.wire, names: self.names, verbosity };
        let time = if self.options.timestamp { now() } else { String::new() };
        let mut out = io::stderr().lock();
        out.write_all(format!("{time}{}", format_message(frame, how)).as_bytes())?;
        Ok(out.flush()?)
    }
}

/// `YYYY-MM-DD HH:MM:SS.mmm: `, in UTC.
fn now() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    vlog::date("%Y-%m-%d %H:%M:%S.###: ", now.as_millis() as u64)
}

/// The messages that a bridge and its controllers exchange; `BRIDGE.snoop` has copies of them, of all versions.
pub(super) fn snoop(options: &Options, args: &[String], process: &mut Process) -> Result<String> {
    let deadline = Deadline::after_s(options.timeout_s);
    let mut stream = connection::snoop(&args[0], &options.pki, deadline)?;
    let names = Names::default();
    let wire = Wire { table_id_in_command: true, ..Wire::DEFAULT };
    let printer = Printer { options, wire: &wire, names: &names };
    let mut frames = Frames::of(&mut stream, deadline);
    process.ready()?;
    let mut greeted = false;
    while let Some(frame) = frames.next()? {
        if !greeted && frame.get(1) == Some(&HELLO) {
            greeted = true;
            continue;
        }
        printer.show(&frame)?;
    }
    bail!("the switch closed the connection");
}

#[cfg(test)]
mod tests {
    use super::*;
    use flow::fields::FieldId;

    #[test]
    fn monitors_are_parsed() {
        let watch = parse_watch("!initial,table=3,out_port=2,tcp,tp_dst=80", &Names::default()).unwrap();
        assert_eq!((watch.table, watch.out_port), (TableId(3), OfPort(2)));
        assert_eq!(watch.flags, MonitorFlags::all() - MonitorFlags::INITIAL);
        assert_eq!(watch.matching.get(FieldId::TcpDst).0, 80);
        for (bad, fault) in [
            ("!inital", "(did you mean '!initial'?)"),
            ("bogus", "bogus"),
            ("table=300", "invalid value of table"),
            ("out_port=zz", "invalid value of out_port"),
        ] {
            let error = parse_watch(bad, &Names::default()).unwrap_err().to_string();
            assert!(error.contains(fault), "{bad}: {error}");
        }
        assert!(parse(&["70000".to_string()], &Names::default()).is_err());
        let wrong = parse(&["invalid_tll".to_string()], &Names::default()).err().unwrap().to_string();
        assert!(wrong.contains("(did you mean 'invalid_ttl'?)"), "{wrong}");
    }
}
