//! [`Connection`]: a blocking OpenFlow connection to a bridge, and its requests.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};
use flow::text::PortNames;
use flow::{OfPort, TlvTable};
use openflow::msg::port::Port;
use openflow::session::{Config, Event, Session};
use openflow::{ErrorBody, Message, Version, VersionSet};

use crate::remote::{Deadline, Stream, TimedOut, reason, run_dir};

/// A session over a stream.
pub(crate) struct Connection {
    stream: Stream,
    session: Session,
    begin: Instant,
    deadline: Deadline,
    pending: Vec<(u32, Message)>,
}

/// The remote of a target: a bridge's name, the path of a socket, or `unix:…`, `tcp:…` or `ssl:…`.
fn remote_of(target: &str) -> Result<String> {
    if ["unix:", "tcp:", "ssl:"].iter().any(|method| target.starts_with(method)) {
        return Ok(target.to_string());
    }
    let socket = run_dir().join(format!("{target}.mgmt"));
    if !target.contains('/') && socket.exists() {
        return Ok(format!("unix:{}", socket.display()));
    }
    if Path::new(target).exists() {
        return Ok(format!("unix:{target}"));
    }
    bail!("{target} is not a bridge or a socket")
}

impl Connection {
    /// Connects and agrees on one of `versions`.
    pub(crate) fn open(
        target: &str,
        pki: &tls::Settings,
        versions: VersionSet,
        deadline: Deadline,
    ) -> Result<Connection> {
        let remote = remote_of(target)?;
        let stream =
            Stream::connect(&remote, pki, false, deadline).map_err(|error| match error.is::<TimedOut>() {
                true => error,
                false => anyhow!("{target}: failed to connect to socket ({})", reason(&error)),
            })?;
        let config = Config { versions, probe_interval_ms: 0, ..Config::default() };
        let session = Session::new(config, 0);
        let mut connection =
            Connection { stream, session, begin: Instant::now(), deadline, pending: Vec::new() };
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

    /// Decodes and encodes further messages by these mappings.
    pub(crate) fn use_tlv(&mut self, tlv: &Arc<TlvTable>) {
        self.session.set_tlv(tlv);
    }

    fn flush(&mut self) -> Result<()> {
        let output = self.session.output().to_vec();
        self.session.consume_output(output.len());
        self.stream.send(&output, self.deadline)
    }

    fn exchange(&mut self) -> Result<()> {
        self.flush()?;
        let bytes = self.stream.receive(self.deadline)?;
        if bytes.is_empty() {
            bail!("the switch closed the connection");
        }
        let now_ms = self.begin.elapsed().as_millis() as u64;
        for event in self.session.input(&bytes, now_ms) {
            match event {
                Event::Connected(_) => {}
                Event::Message { xid, message, .. } => self.pending.push((xid, *message)),
                Event::Refused(error) => bail!("the switch sent what cannot be read: {error}"),
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
    fn next_answer(&mut self) -> Result<(u32, Message)> {
        loop {
            while !self.pending.is_empty() {
                let (xid, message) = self.pending.remove(0);
                match message {
                    Message::PacketIn(_) | Message::PortStatus(_) | Message::FlowRemoved(_) => {}
                    Message::EchoRequest(_) | Message::EchoReply(_) | Message::Hello(_) => {}
                    answer => return Ok((xid, answer)),
                }
            }
            self.exchange()?;
        }
    }

    /// Asks and waits for the one answer; with its transaction.
    pub(crate) fn ask(&mut self, request: &Message) -> Result<(u32, Message)> {
        let asked = self.send(request)?;
        loop {
            let (xid, message) = self.next_answer()?;
            if xid == asked {
                return match message {
                    Message::Error(body) => Err(self.refusal(xid, &body)),
                    answer => Ok((xid, answer)),
                };
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
        let (asked, first) = self.ask(request)?;
        let unexpected = || anyhow!("the switch gave an answer of another kind");
        let (mut entries, mut more) = part(first).ok_or_else(unexpected)?;
        while more {
            let (xid, message) = self.next_answer()?;
            if xid == asked {
                let (next, on) = part(message).ok_or_else(unexpected)?;
                entries.extend(next);
                more = on;
            }
        }
        Ok((asked, entries))
    }

    /// Sends messages and waits until the switch has processed them; its first error is returned.
    pub(crate) fn carry_out(&mut self, messages: &[Message]) -> Result<()> {
        for message in messages {
            self.send(message)?;
            self.flush()?;
        }
        let barrier = self.send(&Message::BarrierRequest)?;
        loop {
            match self.next_answer()? {
                (xid, Message::Error(body)) => return Err(self.refusal(xid, &body)),
                (xid, Message::BarrierReply) if xid == barrier => return Ok(()),
                _ => {}
            }
        }
    }

    fn refusal(&self, xid: u32, body: &ErrorBody) -> anyhow::Error {
        anyhow!("OFPT_ERROR{} (xid={xid:#x}): {}", self.version_text(), body.error)
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
        self.gather(&Message::PortDescRequest(OfPort::NONE), |message| match message {
            Message::PortDescReply(multi) => Some((multi.entries, multi.more)),
            _ => None,
        })
    }
}

/// The names of a bridge's ports.
pub(crate) struct Names {
    /// All of them.
    pub(crate) ports: Vec<Port>,
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

    fn tlv(&self) -> &TlvTable {
        &self.tlv
    }
}
