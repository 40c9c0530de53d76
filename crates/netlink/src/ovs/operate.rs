//! Batches of operations on flows and packets, executed in order with few system calls.

use super::{Execute, FlowDel, FlowGet, FlowPut, FlowReply, Ovs, open_body};
use crate::error::Error;
use crate::socket::NlRequest;
use std::io;

/// One operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request<'a> {
    /// Install or modify a flow.
    FlowPut(FlowPut),
    /// Remove a flow.
    FlowDel(FlowDel),
    /// Get a flow.
    FlowGet(FlowGet),
    /// Execute actions on a packet.
    Execute(Execute<'a>),
}

/// Result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Done.
    Done,
    /// Done, with this flow.
    Flow(Box<FlowReply>),
}

impl Ovs {
    /// Executes operations in order; returns their results in order. A failure does not stop the others. After lost
    /// replies, modifying puts and gets are sent once more; others fail with [`Error::Lost`].
    pub fn operate(&self, dp_ifindex: u32, requests: &[Request<'_>]) -> Vec<Result<Reply, Error>> {
        let mut results: Vec<Result<Reply, Error>> = Vec::with_capacity(requests.len());
        // Valid requests, with the index of their operation.
        let (mut messages, mut owners) = (Vec::with_capacity(requests.len()), Vec::new());
        for (n, request) in requests.iter().enumerate() {
            match self.message(dp_ifindex, request) {
                Ok(message) => {
                    messages.push(message);
                    owners.push(n);
                    results.push(Ok(Reply::Done));
                }
                Err(e) => results.push(Err(e)),
            }
        }
        let mut socket = match self.pool.take() {
            Ok(socket) => socket,
            Err(e) => return no_socket(requests.len(), e),
        };
        let acks = socket.transact(&messages, &mut |sent, body| {
            let flow = open_body(body).and_then(|(dp, attrs)| FlowReply::parse(dp, attrs));
            results[owners[sent]] = match flow {
                Ok(flow) => Ok(Reply::Flow(Box::new(flow))),
                Err(why) => Err(Error::Answer { asked: messages[sent].asked().to_owned(), why }),
            };
        });
        self.pool.put(socket);
        for (n, acks) in owners.into_iter().zip(acks) {
            if let Err(e) = acks {
                results[n] = Err(e);
            }
        }
        results
    }

    /// One operation.
    ///
    /// # Errors
    /// As reported by the kernel.
    pub fn operate_one(&self, dp_ifindex: u32, request: Request<'_>) -> Result<Reply, Error> {
        self.operate(dp_ifindex, &[request]).pop().unwrap_or(Ok(Reply::Done))
    }

    fn message(&self, dp_ifindex: u32, request: &Request<'_>) -> Result<NlRequest, Error> {
        match request {
            Request::FlowPut(put) => self.put_message(dp_ifindex, put),
            Request::FlowDel(del) => self.del_message(dp_ifindex, del),
            Request::FlowGet(get) => self.get_message(dp_ifindex, get),
            Request::Execute(execute) => self.execute_message(dp_ifindex, execute),
        }
    }
}

/// All operations fail for lack of a socket.
fn no_socket(count: usize, why: Error) -> Vec<Result<Reply, Error>> {
    let text = why.to_string();
    let errno = why.errno();
    let again = || Error::Io {
        what: text.clone(),
        source: errno.map_or_else(|| io::ErrorKind::Other.into(), io::Error::from_raw_os_error),
    };
    std::iter::repeat_with(|| Err(again())).take(count).collect()
}
