//! A controller's connection in OpenFlow 1.5 that sends bundles, as `ovn-controller` does.

use anyhow::{Context, Result, anyhow, bail, ensure};
use flow::text::NoPortNames;
use ofp_actions::text::{FlowModCommand, parse_flow_mod};
use openflow::msg::bundle::{BundleAdd, BundleControl, BundleControlType};
use openflow::msg::control::Hello;
use openflow::text::flow_mod_of;
use openflow::{Format, Message, Version, VersionSet};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

const VERSION: Version = Version::V15;
/// Atomic and ordered.
const FLAGS: u16 = 3;
const BUNDLE: u32 = 1;
/// `OFPT_HELLO`, `OFPT_ERROR`, `OFPT_ECHO_REQUEST`, `OFPT_BUNDLE_CONTROL`.
const HELLO: u8 = 0;
const ERROR: u8 = 1;
const ECHO_REQUEST: u8 = 2;
const BUNDLE_CONTROL: u8 = 33;
/// `OFPBCT_COMMIT_REPLY`.
const COMMIT_REPLY: u16 = 5;
/// A commit of half a million rules takes long.
const LIMIT: Duration = Duration::from_secs(300);

/// The connection.
pub(crate) struct Client {
    stream: UnixStream,
}

fn encode(message: &Message, xid: u32) -> Result<Vec<u8>> {
    openflow::encode(message, VERSION, xid).map_err(|why| anyhow!("{why}"))
}

/// The bytes of a bundle of flow-mods: additions, and strict deletions.
pub(crate) fn bundle(mods: impl IntoIterator<Item = (bool, String)>) -> Result<Vec<u8>> {
    let control = |ty| {
        let control = BundleControl { bundle_id: BUNDLE, ty, flags: FLAGS };
        encode(&Message::BundleControl(control), BUNDLE)
    };
    let mut bytes = control(BundleControlType::OpenRequest)?;
    for (xid, (adds, line)) in (2..).zip(mods) {
        let command = if adds { FlowModCommand::Add } else { FlowModCommand::DeleteStrict };
        let asked = parse_flow_mod(&line, command, &NoPortNames).map_err(|why| anyhow!("{line}: {why}"))?;
        let message = Box::new(Message::FlowMod(flow_mod_of(Format::Standard, asked)));
        let add = BundleAdd { bundle_id: BUNDLE, flags: FLAGS, message };
        bytes.extend(encode(&Message::BundleAdd(add), xid)?);
    }
    bytes.extend(control(BundleControlType::CommitRequest)?);
    Ok(bytes)
}

impl Client {
    /// Connects to a bridge's socket.
    pub(crate) fn connect(socket: &Path) -> Result<Client> {
        let stream = UnixStream::connect(socket).with_context(|| format!("{}", socket.display()))?;
        stream.set_read_timeout(Some(LIMIT))?;
        let mut client = Client { stream };
        let hello = Message::Hello(Hello { versions: VersionSet::of(&[VERSION]) });
        client.stream.write_all(&encode(&hello, 1)?)?;
        client.wait(|kind, _| kind == HELLO)?;
        Ok(client)
    }

    /// Reads messages until one is as wanted. An error of the switch is an error.
    fn wait(&mut self, wanted: impl Fn(u8, &[u8]) -> bool) -> Result<()> {
        loop {
            let mut head = [0; 8];
            self.stream.read_exact(&mut head).context("the switch closed the connection")?;
            let mut body = vec![0; usize::from(u16::from_be_bytes([head[2], head[3]])).saturating_sub(8)];
            self.stream.read_exact(&mut body)?;
            match head[1] {
                ERROR => bail!("the switch refused a message: {body:02x?}"),
                ECHO_REQUEST => {
                    head[1] += 1;
                    self.stream.write_all(&[&head[..], &body].concat())?;
                }
                kind if wanted(kind, &body) => return Ok(()),
                _ => {}
            }
        }
    }

    /// Sends a bundle and waits for the reply to its commit.
    pub(crate) fn commit(&mut self, bundle: &[u8]) -> Result<()> {
        let mut writer = self.stream.try_clone()?;
        std::thread::scope(|scope| {
            let sent = scope.spawn(move || writer.write_all(bundle));
            let answered = self.wait(|kind, body| {
                kind == BUNDLE_CONTROL && body.get(4..6) == Some(&COMMIT_REPLY.to_be_bytes()[..])
            });
            ensure!(sent.join().is_ok_and(|sent| sent.is_ok()), "the bundle could not be sent");
            answered
        })
    }
}
