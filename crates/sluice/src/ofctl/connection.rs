//! [`Connection`]: a blocking OpenFlow connection to a bridge, and its requests.

mod attempt;

pub(crate) use attempt::Refusal;

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use flow::text::{NoPortNames, PortNames};
use flow::{OfPort, TableId, TlvTable};
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use openflow::msg::control::Hello;
use openflow::msg::port::Port;
use openflow::session::{Config, Event, Session};
use openflow::text::{self, Printing};
use openflow::{Message, Multi, Options, Version, VersionSet};

use crate::remote::{Deadline, Stream, TimedOut, reason, run_dir};

/// Bundles are atomic and ordered.
const BUNDLE_FLAGS: u16 = 3;
/// `OFPT_ECHO_REPLY`.
const ECHO_REPLY: u8 = 3;

/// The entries of a reply of that kind, and whether more follow, for [`Connection::gather`].
macro_rules! entries {
    ($kind:ident) => {
        |message| match message {
            openflow::Message::$kind(multi) => Some((multi.entries, multi.more)),
            _ => None,
        }
    };
}
pub(crate) use entries;

/// A session over a stream.
pub(crate) struct Connection {
    target: String,
    stream: Stream,
    session: Session,
    begin: Instant,
    deadline: Deadline,
    pending: VecDeque<Answer>,
}

/// A received message.
pub(crate) struct Answer {
    /// Its transaction.
    pub(crate) xid: u32,
    /// Contents.
    pub(crate) message: Message,
    /// All its bytes.
    pub(crate) frame: Box<[u8]>,
}

fn has_method(target: &str) -> bool {
    ["unix:", "tcp:", "ssl:"].iter().any(|method| target.starts_with(method))
}

/// The remote of a target: a bridge's name, the path of a socket, or `unix:…`, `tcp:…` or `ssl:…`.
fn remote_of(target: &str, service: &str) -> Result<String> {
    if has_method(target) {
        return Ok(target.to_string());
    }
    let socket = run_dir().join(format!("{target}.{service}"));
    if !target.contains('/') && socket.exists() {
        return Ok(format!("unix:{}", socket.display()));
    }
    if Path::new(target).exists() {
        return Ok(format!("unix:{target}"));
    }
    bail!("{target} is not a bridge or a socket")
}

/// Connects to a service of a bridge, `mgmt` or `snoop`.
fn connect(target: &str, service: &str, pki: &tls::Settings, deadline: Deadline) -> Result<Stream> {
    let remote = remote_of(target, service)?;
    Stream::connect(&remote, pki, false, deadline).map_err(|error| match error.is::<TimedOut>() {
        true => error,
        false if has_method(target) => anyhow!("connecting to {target} ({})", reason(&error)),
        false => anyhow!("{target}: failed to open socket ({})", reason(&error)),
    })
}

/// Connects to the copies of a bridge's messages, which begin with a greeting and have all versions.
pub(crate) fn snoop(target: &str, pki: &tls::Settings, deadline: Deadline) -> Result<Stream> {
    let mut stream = connect(target, "snoop", pki, deadline)?;
    let hello = Message::Hello(Hello { versions: VersionSet::IMPLEMENTED });
    let bytes = openflow::encode(&hello, Version::V15, 1).map_err(|error| anyhow!("{error}"))?;
    stream.send(&bytes, deadline)?;
    Ok(stream)
}

impl Connection {
    /// Connects to a bridge and agrees on one of `versions`.
    pub(crate) fn open(
        target: &str,
        pki: &tls::Settings,
        versions: VersionSet,
        deadline: Deadline,
    ) -> Result<Connection> {
        let stream = connect(target, "mgmt", pki, deadline)?;
        let config = Config { versions, probe_interval_ms: 0, ..Config::default() };
        let session = Session::new(config, 0);
        let mut connection = Connection {
            target: target.to_string(),
            stream,
            session,
            begin: Instant::now(),
            deadline,
            pending: VecDeque::new(),
        };
        while connection.session.version().is_none() {
            connection
                .exchange()
                .with_context(|| format!("{target}: cannot agree on an OpenFlow version"))?;
        }
        Ok(connection)
    }

    /// The version agreed.
    pub(crate) fn version(&self) -> Version {
        self.session.version().unwrap_or(Version::V10)
    }

    /// A transaction for a message sent past the session.
    pub(crate) fn next_xid(&mut self) -> u32 {
        self.session.new_xid()
    }

    /// Decodes and encodes further messages by these mappings.
    pub(crate) fn use_tlv(&mut self, tlv: &Arc<TlvTable>) {
        self.session.set_tlv(tlv);
    }

    fn flush(&mut self) -> Result<()> {
        let output = self.session.output().to_vec();
        self.session.consume_output(output.len());
        self.log("sent (Success)", &output);
        self.stream.send(&output, self.deadline)
    }

    /// Logs whole messages.
    fn log(&self, what: &str, mut bytes: &[u8]) {
        let options = self.session.options();
        while let Some(len) = bytes.get(2..4).map(|len| usize::from(u16::from_be_bytes([len[0], len[1]]))) {
            let Some((frame, rest)) = bytes.split_at_checked(len).filter(|_| len >= openflow::HEADER_BYTES)
            else {
                return;
            };
            log::debug!(target: "vconn", "{}: {what}: {}", self.target, text::describe(frame, options));
            bytes = rest;
        }
    }

    fn exchange(&mut self) -> Result<()> {
        self.flush()?;
        let bytes = self.stream.receive(self.deadline)?;
        if bytes.is_empty() {
            bail!("the switch closed the connection");
        }
        self.log("received", &bytes);
        let now_ms = self.begin.elapsed().as_millis() as u64;
        for event in self.session.input(&bytes, now_ms) {
            match event {
                Event::Connected(_) => {}
                Event::Message { xid, message, frame } => {
                    self.pending.push_back(Answer { xid, message: *message, frame });
                }
                Event::Refused(error) => bail!("cannot decode a message of the switch: {error}"),
                Event::Closed(why) => {
                    self.flush()?;
                    bail!("{why}");
                }
            }
        }
        Ok(())
    }

    /// Sends a message without waiting for a reply.
    pub(crate) fn send(&mut self, message: &Message) -> Result<u32> {
        Ok(self.session.send(message)?)
    }

    /// The first received message that is not asynchronous.
    fn next_answer(&mut self) -> Result<Answer> {
        loop {
            while let Some(answer) = self.pending.pop_front() {
                match answer.message {
                    Message::PacketIn(_) | Message::PortStatus(_) | Message::FlowRemoved(_) => {}
                    Message::EchoRequest(_) | Message::EchoReply(_) | Message::Hello(_) => {}
                    _ => return Ok(answer),
                }
            }
            self.exchange()?;
        }
    }

    /// The next answer to a transaction.
    fn answer_to(&mut self, asked: u32) -> Result<Answer> {
        loop {
            let answer = self.next_answer()?;
            if answer.xid == asked {
                return match answer.message {
                    Message::Error(_) => Err(self.refusal(&answer.frame)),
                    _ => Ok(answer),
                };
            }
        }
    }

    /// Asks and waits for the one answer; with its transaction.
    pub(crate) fn ask(&mut self, request: &Message) -> Result<(u32, Message)> {
        let asked = self.send(request)?;
        let answer = self.answer_to(asked)?;
        Ok((asked, answer.message))
    }

    /// Sends a request and collects the bytes of all parts of the reply.
    pub(crate) fn frames(&mut self, request: &Message) -> Result<Vec<Box<[u8]>>> {
        let asked = self.send(request)?;
        let mut frames = Vec::new();
        loop {
            let answer = self.answer_to(asked)?;
            let more = text::more_follows(&answer.frame);
            frames.push(answer.frame);
            if !more {
                return Ok(frames);
            }
        }
    }

    /// Sends a request and collects the parts of the reply; `part` extracts the entries of a part and returns
    /// whether more follow.
    pub(crate) fn gather<T>(
        &mut self,
        request: &Message,
        part: fn(Message) -> Option<(Vec<T>, bool)>,
    ) -> Result<(u32, Vec<T>)> {
        let asked = self.send(request)?;
        let mut entries = Vec::new();
        loop {
            let answer = self.answer_to(asked)?;
            let (next, more) =
                part(answer.message).ok_or_else(|| anyhow!("the switch gave an answer of another kind"))?;
            entries.extend(next);
            if !more {
                return Ok((asked, entries));
            }
        }
    }

    /// Sends messages and waits until the switch has processed them; its first error is returned.
    pub(crate) fn carry_out(&mut self, messages: &[Message]) -> Result<()> {
        for message in messages {
            self.send(message)?;
            self.flush()?;
        }
        let barrier = self.send(&Message::BarrierRequest)?;
        loop {
            let Answer { xid, message, frame } = self.next_answer()?;
            match message {
                Message::Error(_) => return Err(self.refusal(&frame)),
                Message::BarrierReply if xid == barrier => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends messages in one transaction: all take effect, or none. Returns the errors of the switch, one for each
    /// refused message, as text.
    pub(crate) fn in_bundle(&mut self, messages: Vec<Message>, show: &dyn Fn(&[u8]) -> String) -> Result<()> {
        let control = |ty| Message::BundleControl(BundleControl { bundle_id: 0, ty, flags: BUNDLE_FLAGS });
        self.ask(&control(BundleControlType::OpenRequest))?;
        let mut sent = Vec::with_capacity(messages.len());
        for message in messages {
            let message = BundleAdd { bundle_id: 0, flags: BUNDLE_FLAGS, message: Box::new(message) };
            let xid = self.send(&Message::BundleAdd(message.clone()))?;
            sent.push((xid, message));
            self.flush()?;
        }
        let commit = self.send(&control(BundleControlType::CommitRequest))?;
        let mut refused = Vec::new();
        loop {
            let Answer { xid, message, .. } = self.next_answer()?;
            match message {
                Message::Error(body) => {
                    let about = sent.iter().find(|(known, _)| *known == xid);
                    let bytes = about.and_then(|(_, m)| self.session.encode(&m.message, xid).ok());
                    let about = match bytes {
                        Some(bytes) => show(&bytes),
                        None => show(&body.data),
                    };
                    refused.push(format!("Error {} for: {}", body.error, about.trim_end()));
                    if xid == commit {
                        bail!("{}", refused.join("\n"));
                    }
                }
                Message::BundleControl(_) if xid == commit => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends an echo request and waits for its reply, which it returns with the transaction.
    pub(crate) fn echo(&mut self, payload: &[u8]) -> Result<(u32, Vec<u8>)> {
        self.session.set_tap(true);
        let xid = self.send(&Message::EchoRequest(payload.to_vec()))?;
        let mut seen = Vec::new();
        loop {
            seen.extend(self.session.take_tap().unwrap_or_default());
            while let Some(frame) = text::split_frame(&mut seen) {
                if frame.get(1) == Some(&ECHO_REPLY) && frame.get(4..8) == Some(&xid.to_be_bytes()) {
                    self.session.set_tap(false);
                    return Ok((xid, frame[8..].to_vec()));
                }
            }
            self.exchange()?;
        }
    }

    /// Options for decoding.
    pub(crate) fn options(&self) -> &Options {
        self.session.options()
    }

    /// Messages as they come, without answers to any of them: those that wait, then further ones. The connection has no
    /// other use afterwards.
    pub(crate) fn take_frames(&mut self) -> Result<Frames<'_>> {
        self.flush()?;
        let mut bytes: Vec<u8> = self.pending.drain(..).flat_map(|answer| answer.frame.into_vec()).collect();
        bytes.extend_from_slice(self.session.pending());
        Ok(Frames { stream: &mut self.stream, deadline: self.deadline, bytes })
    }

    /// An error of the switch as a whole: its name, and the message that it is about.
    fn refusal(&self, frame: &[u8]) -> anyhow::Error {
        let how = Printing { options: self.options(), names: &NoPortNames, verbosity: 2 };
        anyhow!("{}", text::format_message(frame, how).trim_end())
    }

    /// ` (OF1.3)`, nothing for 1.0.
    pub(crate) fn version_text(&self) -> String {
        match self.version().0 {
            n @ 2.. => format!(" (OF1.{})", n - 1),
            _ => String::new(),
        }
    }

    /// All ports.
    pub(crate) fn ports(&mut self) -> Result<(u32, Vec<Port>)> {
        self.gather(&Message::PortDescRequest(OfPort::NONE), entries!(PortDescReply))
    }

    /// The names of tables, of those that have one; none from a switch that does not tell.
    fn table_names(&mut self) -> Vec<(TableId, String)> {
        let all: Vec<(TableId, String)> = if self.version() < Version::V13 {
            let stats = self.gather(&Message::TableStatsRequest, entries!(TableStatsReply));
            stats.map_or_else(|_| Vec::new(), |(_, all)| all.into_iter().map(|t| (t.table, t.name)).collect())
        } else {
            let request = Message::TableFeaturesRequest(Multi::all(Vec::new()));
            let features = self.gather(&request, entries!(TableFeaturesReply));
            features
                .map_or_else(|_| Vec::new(), |(_, all)| all.into_iter().map(|t| (t.table, t.name)).collect())
        };
        all.into_iter().filter(|(_, name)| !name.is_empty()).collect()
    }
}

/// A stream as messages.
pub(crate) struct Frames<'c> {
    stream: &'c mut Stream,
    deadline: Deadline,
    bytes: Vec<u8>,
}

impl<'c> Frames<'c> {
    /// The messages of a stream.
    pub(crate) fn of(stream: &'c mut Stream, deadline: Deadline) -> Frames<'c> {
        Frames { stream, deadline, bytes: Vec::new() }
    }

    /// The next message that has come whole.
    pub(crate) fn buffered(&mut self) -> Option<Vec<u8>> {
        text::split_frame(&mut self.bytes)
    }

    /// Readable when more has come.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }

    /// Time until the deadline; `None` is for ever.
    pub(crate) fn time_left(&self) -> Result<Option<Duration>> {
        Ok(self.deadline.left()?)
    }

    /// Takes the bytes that have arrived, or waits for some; `false` at the end of the stream.
    pub(crate) fn fill(&mut self) -> Result<bool> {
        let bytes = self.stream.receive(self.deadline)?;
        self.bytes.extend_from_slice(&bytes);
        Ok(!bytes.is_empty())
    }

    /// Sends bytes of messages.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<()> {
        self.stream.send(bytes, self.deadline)
    }
}

/// The names of a bridge's tables, of those that have one. The switch is asked, in a connection of its own, once one is
/// needed: from OpenFlow 1.3 on names come with the features of all tables, more than a megabyte.
#[derive(Default)]
pub(crate) struct TableNames {
    ask: Option<AskTables>,
    known: OnceCell<Vec<(TableId, String)>>,
}

type AskTables = Box<dyn Fn() -> Result<Connection>>;

impl TableNames {
    /// The names, from a connection that this function opens.
    pub(crate) fn from(connect: impl Fn() -> Result<Connection> + 'static) -> TableNames {
        TableNames { ask: Some(Box::new(connect)), known: OnceCell::new() }
    }

    /// All of them; none from a switch that does not answer.
    pub(crate) fn all(&self) -> &[(TableId, String)] {
        self.known.get_or_init(|| {
            let connection = self.ask.as_ref().map(|connect| connect());
            connection.and_then(Result::ok).map_or_else(Vec::new, |mut connection| connection.table_names())
        })
    }
}

/// The names of a bridge's ports and tables.
#[derive(Default)]
pub(crate) struct Names {
    /// All of them.
    pub(crate) ports: Vec<Port>,
    /// Names of tables.
    pub(crate) tables: TableNames,
    /// Whether names are printed; they are always understood.
    pub(crate) show: bool,
    /// Its mappings of tunnel metadata.
    pub(crate) tlv: Arc<TlvTable>,
}

impl PortNames for Names {
    fn name(&self, port: OfPort) -> Option<&str> {
        let found = self.ports.iter().find(|known| known.port == port)?;
        self.show.then_some(found.name.as_str())
    }

    fn number(&self, name: &str) -> Option<OfPort> {
        self.ports.iter().find(|known| known.name == name).map(|known| known.port)
    }

    fn table_name(&self, table: TableId) -> Option<&str> {
        let all = if self.show { self.tables.all() } else { &[] };
        all.iter().find(|(known, _)| *known == table).map(|(_, name)| name.as_str())
    }

    fn table_number(&self, name: &str) -> Option<TableId> {
        self.tables.all().iter().find(|(_, known)| known == name).map(|(table, _)| *table)
    }

    fn tlv(&self) -> &TlvTable {
        &self.tlv
    }
}
