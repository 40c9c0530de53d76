//! [`Session`]: a blocking connection to a database server with a replica of the database.
//!
//! Reads the server's own schema first, so every version of the database is shown unchanged.

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ovsdb::client::{Client, ClientConfig, ClientState, Replica, TxnBuilder, TxnOutcome};
use ovsdb::jsonrpc::{Framer, FramerLimits, RpcMessage};
use ovsdb::limits::MAX_REPLY_BYTES;
use ovsdb::schema::DatabaseSchema;
use serde_json::{Value, json};

use crate::remote::{Deadline, Stream, TimedOut, reason};

/// Name of the configuration database.
const DATABASE: &str = "Open_vSwitch";

/// An established connection.
pub(crate) struct Session {
    stream: Stream,
    client: Client,
    deadline: Deadline,
}

impl Session {
    /// Connects and waits for the contents.
    pub(crate) fn open(
        remote: &str,
        pki: &tls::Settings,
        retry: bool,
        deadline: Deadline,
    ) -> Result<Session> {
        let mut stream = match Stream::connect(remote, pki, retry, deadline) {
            Ok(stream) => stream,
            Err(error) if error.is::<TimedOut>() => return Err(error),
            Err(error) => bail!("{remote}: database connection failed ({})", reason(&error)),
        };
        let schema = fetch_schema(&mut stream, deadline)
            .with_context(|| format!("{remote}: cannot get the schema of database {DATABASE}"))?;
        let client = Client::new(ClientConfig::all(Arc::new(schema)));
        let mut session = Session { stream, client, deadline };
        while session.client.state() != ClientState::Ready {
            session.exchange()?;
        }
        Ok(session)
    }

    pub(crate) fn replica(&self) -> &Replica {
        self.client.replica()
    }

    /// Waits for input from the server.
    pub(crate) fn exchange(&mut self) -> Result<()> {
        let output = self.client.take_output();
        self.stream.send(&output, self.deadline)?;
        let bytes = self.stream.receive(self.deadline)?;
        if bytes.is_empty() {
            bail!("the database server closed the connection");
        }
        self.client.input(&bytes)?;
        let output = self.client.take_output();
        self.stream.send(&output, self.deadline)
    }

    /// Runs a transaction; on success, the replica has its changes.
    pub(crate) fn transact(&mut self, operations: Vec<Value>) -> Result<TxnOutcome> {
        let mut txn = TxnBuilder::new();
        for operation in operations {
            txn.raw(operation);
        }
        let id = self.client.transact(txn)?;
        loop {
            self.exchange()?;
            let mut outcomes = self.client.take_outcomes().into_iter();
            if let Some((_, outcome)) = outcomes.find(|(of, _)| *of == id) {
                return Ok(outcome);
            }
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.stream.finish();
    }
}

fn fetch_schema(stream: &mut Stream, deadline: Deadline) -> Result<DatabaseSchema> {
    let id = json!("schema");
    let request =
        RpcMessage::Request { id: id.clone(), method: "get_schema".into(), params: vec![json!(DATABASE)] };
    stream.send(&request.encode(), deadline)?;
    let limits = FramerLimits { bytes: MAX_REPLY_BYTES, ..FramerLimits::default() };
    let mut framer = Framer::new(limits);
    loop {
        let bytes = stream.receive(deadline)?;
        if bytes.is_empty() {
            bail!("the database server closed the connection");
        }
        framer.feed(&bytes);
        while let Some(text) = framer.next_text()? {
            match RpcMessage::from_json(text)? {
                RpcMessage::Reply { id: of, result } if of == id => {
                    return Ok(DatabaseSchema::from_json(&result)?);
                }
                RpcMessage::Error { id: of, error } if of == id => bail!("the server refuses: {error}"),
                // The server sends no other relevant message.
                _ => {}
            }
        }
    }
}
