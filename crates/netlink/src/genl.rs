//! Generic netlink (linux/genetlink.h): families by name, and their multicast groups.

use crate::error::Error;
use crate::socket::{Asked, MessageWriter, Socket};
use flow::nlattr::{AttrError, Attrs};

/// The controller family (`GENL_ID_CTRL`, "nlctrl").
pub(crate) const CONTROLLER: u16 = 0x10;
/// Commands of the controller family.
pub(crate) mod command {
    pub(crate) const GET_FAMILY: u8 = 3;
}
/// Version of the controller family.
pub(crate) const VERSION: u8 = 2;
/// Maximum bytes of a reply about a family, with all its operations.
const REPLY_BYTES: usize = 8192;

/// `CTRL_ATTR_*`.
mod attr {
    pub(super) const FAMILY_ID: u16 = 1;
    pub(super) const FAMILY_NAME: u16 = 2;
    pub(super) const VERSION: u16 = 3;
    pub(super) const MAXATTR: u16 = 5;
    pub(super) const MCAST_GROUPS: u16 = 7;
    /// Within a group.
    pub(super) const GROUP_NAME: u16 = 1;
    pub(super) const GROUP_ID: u16 = 2;
}

/// `CTRL_ATTR_*`, by number.
pub(crate) const ATTRIBUTES: &[&str] = &[
    "CTRL_ATTR_UNSPEC",
    "CTRL_ATTR_FAMILY_ID",
    "CTRL_ATTR_FAMILY_NAME",
    "CTRL_ATTR_VERSION",
    "CTRL_ATTR_HDRSIZE",
    "CTRL_ATTR_MAXATTR",
    "CTRL_ATTR_OPS",
    "CTRL_ATTR_MCAST_GROUPS",
];

/// A generic netlink family of the running kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Family {
    /// Its name.
    pub name: String,
    /// Type of its messages, assigned by the running kernel.
    pub id: u16,
    /// Its version.
    pub version: u8,
    /// Highest known attribute number; 0 if kernels do not report it.
    pub attributes_max: u32,
    /// Multicast groups, by name.
    pub groups: Vec<(String, u32)>,
}

impl Family {
    /// Number of a multicast group.
    pub fn group(&self, name: &str) -> Option<u32> {
        self.groups.iter().find(|(n, _)| n == name).map(|(_, id)| *id)
    }

    /// Reads a family of the controller (after the generic header).
    ///
    /// # Errors
    /// Id or name are missing, or malformed.
    pub fn parse(bytes: &[u8]) -> Result<Family, AttrError> {
        let attrs = Attrs::parse(bytes)?;
        let mut groups = Vec::new();
        if let Some(list) = attrs.get(attr::MCAST_GROUPS) {
            for group in list.nested()? {
                let group = group.nested()?;
                let name = group.require(attr::GROUP_NAME)?.text()?;
                groups.push((name.to_owned(), group.require(attr::GROUP_ID)?.u32()?));
            }
        }
        let number = |kind| attrs.get(kind).map(|a| a.u32()).transpose();
        Ok(Family {
            name: attrs.require(attr::FAMILY_NAME)?.text()?.to_owned(),
            id: attrs.require(attr::FAMILY_ID)?.u16()?,
            version: number(attr::VERSION)?.unwrap_or(0) as u8,
            attributes_max: number(attr::MAXATTR)?.unwrap_or(0),
            groups,
        })
    }
}

/// Looks up a family; the kernel loads its module if possible.
///
/// # Errors
/// [`Error::NoModule`] if there is no such family.
pub fn family(socket: &mut Socket, name: &str) -> Result<Family, Error> {
    let what = format!("find the family {name}");
    let asked = Asked::again(what.clone(), ATTRIBUTES, REPLY_BYTES);
    let mut request = MessageWriter::new(CONTROLLER, [command::GET_FAMILY, VERSION], 0, &[], asked);
    request.attrs.text(attr::FAMILY_NAME, name);
    let mut found = None;
    let done = socket.request(request.finish()?, &mut |body| {
        found = Some(body.get(4..).ok_or(AttrError::Cut { at_bytes: 0 }).and_then(Family::parse));
    });
    match (done, found) {
        (Err(e), _) if e.is_not_found() => Err(Error::NoModule { family: name.to_owned() }),
        (Err(e), _) => Err(e),
        (Ok(()), Some(Ok(family))) => Ok(family),
        (Ok(()), Some(Err(why))) => Err(Error::Answer { asked: what, why }),
        (Ok(()), None) => Err(Error::Unanswered { asked: what }),
    }
}
