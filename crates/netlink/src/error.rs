//! Errors of requests to the kernel, with messages.

use flow::nlattr::{AttrError, TooLong};
use std::fmt;
use std::io;

/// A refusal by the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Error number (`errno.h`).
    pub errno: i32,
    /// The request: "put a flow", "add port eth0".
    pub asked: String,
    /// The kernel's message (extended acknowledgement), if any.
    pub message: Option<String>,
    /// The offending attribute, by name.
    pub attribute: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot {}: {}", self.asked, io::Error::from_raw_os_error(self.errno))?;
        if let Some(message) = &self.message {
            write!(f, "; the kernel says: {message}")?;
        }
        if let Some(attribute) = &self.attribute {
            write!(f, "; it means {attribute}")?;
        }
        Ok(())
    }
}

/// Error of a request or its reply.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel has no such family: its module is not loaded and could not be.
    #[error(
        "the kernel has no generic netlink family {family}: is the module openvswitch loaded? (modprobe openvswitch)"
    )]
    NoModule {
        /// Name of the family.
        family: String,
    },
    /// The kernel has no connection tracking, or no netlink interface to it.
    #[error(
        "the kernel does not list its connections: is the module nf_conntrack_netlink loaded? (modprobe nf_conntrack_netlink)"
    )]
    NoConntrack,
    /// The kernel has no timeout policies of connections.
    #[error(
        "the kernel has no timeout policies of connections: is the module nfnetlink_cttimeout loaded? (modprobe nfnetlink_cttimeout)"
    )]
    NoTimeouts,
    /// The kernel refused.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The reply was lost because the receive buffer was full: the request may have been executed.
    #[error("cannot {asked}: the reply was lost (receive buffer full)")]
    Lost {
        /// The request.
        asked: String,
    },
    /// The kernel did not reply in time.
    #[error("cannot {asked}: no answer")]
    Unanswered {
        /// The request.
        asked: String,
    },
    /// The reply is malformed.
    #[error("cannot {asked}: bad answer: {why}")]
    Answer {
        /// The request.
        asked: String,
        /// The fault.
        why: AttrError,
    },
    /// The request does not fit attributes.
    #[error("cannot {asked}: {why}")]
    TooLong {
        /// The request.
        asked: String,
        /// The part that does not fit.
        why: TooLong,
    },
    /// The request is invalid.
    #[error("cannot {asked}: {why}")]
    Invalid {
        /// The request.
        asked: String,
        /// The fault.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation.
        what: String,
        /// The cause.
        source: io::Error,
    },
}

impl Error {
    /// The error number of a refusal or a failed system call.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Error::Refused(refusal) => Some(refusal.errno),
            Error::Io { source, .. } => source.raw_os_error(),
            Error::Lost { .. } => Some(libc::ENOBUFS),
            Error::NoModule { .. }
            | Error::NoConntrack
            | Error::NoTimeouts
            | Error::Unanswered { .. }
            | Error::Answer { .. }
            | Error::TooLong { .. }
            | Error::Invalid { .. } => None,
        }
    }

    /// No such flow or entry (`ENOENT`).
    pub fn is_not_found(&self) -> bool {
        self.errno() == Some(libc::ENOENT)
    }

    /// It exists already (`EEXIST`), or must be unique (`EBUSY`).
    pub fn is_exists(&self) -> bool {
        matches!(self.errno(), Some(libc::EEXIST | libc::EBUSY))
    }

    /// No such datapath, port or device (`ENODEV`).
    pub fn is_no_device(&self) -> bool {
        self.errno() == Some(libc::ENODEV)
    }

    /// No buffer (`ENOBUFS`): a reply or an upcall was lost, or the kernel had no memory.
    pub fn is_no_buffers(&self) -> bool {
        self.errno() == Some(libc::ENOBUFS)
    }

    /// Unsupported by this kernel (`EOPNOTSUPP`).
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(libc::EOPNOTSUPP)
    }

    /// Invalid for the kernel (`EINVAL`, `ERANGE`).
    pub fn is_invalid(&self) -> bool {
        matches!(self.errno(), Some(libc::EINVAL | libc::ERANGE)) || matches!(self, Error::Invalid { .. })
    }

    /// No permission (`EPERM`, `EACCES`).
    pub fn is_not_permitted(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// The kernel has no such family: its module is missing.
    pub fn is_no_module(&self) -> bool {
        matches!(self, Error::NoModule { .. })
    }
}
