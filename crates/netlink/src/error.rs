//! What goes wrong between us and the kernel, in words.

use flow::nlattr::{AttrError, TooLong};
use std::fmt;
use std::io;

/// The kernel said no.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// Error number (`errno.h`).
    pub errno: i32,
    /// What was asked: "put a flow", "add port eth0".
    pub asked: String,
    /// The kernel's own words (extended acknowledgement), if it had any.
    pub message: Option<String>,
    /// The attribute that it complained about, by name.
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

/// Why a request was not carried out, or an answer was not understood.
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
    /// The kernel tracks connections and tells nobody, or tracks none.
    #[error(
        "the kernel does not tell of its connections: is the module nf_conntrack_netlink loaded? (modprobe nf_conntrack_netlink)"
    )]
    NoConntrack,
    /// The kernel said no.
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// The answer got lost because the receive buffer was full: the request was carried out or not.
    #[error("cannot {asked}: the answer got lost (receive buffer full)")]
    Lost {
        /// What was asked.
        asked: String,
    },
    /// The kernel did not answer in time.
    #[error("cannot {asked}: no answer")]
    Unanswered {
        /// What was asked.
        asked: String,
    },
    /// The answer makes no sense.
    #[error("cannot {asked}: bad answer: {why}")]
    Answer {
        /// What was asked.
        asked: String,
        /// What is wrong with it.
        why: AttrError,
    },
    /// The request cannot be put into attributes.
    #[error("cannot {asked}: {why}")]
    TooLong {
        /// What was asked.
        asked: String,
        /// What does not fit.
        why: TooLong,
    },
    /// The request makes no sense.
    #[error("cannot {asked}: {why}")]
    Invalid {
        /// What was asked.
        asked: String,
        /// What is wrong with it.
        why: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
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

    /// There is one already (`EEXIST`), or one that may not be twice (`EBUSY`).
    pub fn is_exists(&self) -> bool {
        matches!(self.errno(), Some(libc::EEXIST | libc::EBUSY))
    }

    /// No such datapath, port or device (`ENODEV`).
    pub fn is_no_device(&self) -> bool {
        self.errno() == Some(libc::ENODEV)
    }

    /// No buffer (`ENOBUFS`): an answer or an upcall got lost, or the kernel had no memory.
    pub fn is_no_buffers(&self) -> bool {
        self.errno() == Some(libc::ENOBUFS)
    }

    /// This kernel cannot do that (`EOPNOTSUPP`).
    pub fn is_unsupported(&self) -> bool {
        self.errno() == Some(libc::EOPNOTSUPP)
    }

    /// The kernel does not take the request as it is (`EINVAL`, `ERANGE`).
    pub fn is_invalid(&self) -> bool {
        matches!(self.errno(), Some(libc::EINVAL | libc::ERANGE)) || matches!(self, Error::Invalid { .. })
    }

    /// The caller may not (`EPERM`, `EACCES`).
    pub fn is_not_permitted(&self) -> bool {
        matches!(self.errno(), Some(libc::EPERM | libc::EACCES))
    }

    /// The kernel has no such family, its module is not there.
    pub fn is_no_module(&self) -> bool {
        matches!(self, Error::NoModule { .. })
    }
}
