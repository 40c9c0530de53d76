//! Running as an unprivileged user, with the few network capabilities that a switch needs (capabilities(7)).

use std::ffi::CString;
use std::io;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, set_capabilities, set_keep_capabilities, set_thread_groups,
    set_thread_res_gid, set_thread_res_uid,
};

/// Bytes for one entry of the users' or groups' database.
const ENTRY_BYTES: usize = 1 << 16;
/// Maximum supplementary groups.
const GROUPS_MAX: usize = 1 << 10;

/// Powers that an unprivileged program keeps (capabilities(7)).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Powers {
    /// Network devices, raw sockets, BPF programs and memory locks, for a switch.
    Devices,
    /// Low ports and memory locks, for other daemons.
    Ports,
}

impl Powers {
    fn capabilities(self) -> CapabilitySet {
        match self {
            Powers::Devices => {
                CapabilitySet::NET_ADMIN
                    | CapabilitySet::NET_RAW
                    | CapabilitySet::NET_BROADCAST
                    | CapabilitySet::IPC_LOCK
                    | CapabilitySet::BPF
            }
            Powers::Ports => CapabilitySet::NET_BIND_SERVICE | CapabilitySet::IPC_LOCK,
        }
    }
}

/// The user to become.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct User {
    uid: u32,
    gid: u32,
    groups: Vec<u32>,
}

impl User {
    /// Looks up `USER`, `USER:GROUP` or `:GROUP`, by names or numbers.
    ///
    /// # Errors
    /// There is no such user or group.
    pub fn parse(spec: &str) -> io::Result<User> {
        let (user, group) = spec.split_once(':').map_or((spec, None), |(user, group)| (user, Some(group)));
        let (uid, own_gid, name) = match user {
            "" => (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw(), None),
            user => {
                let (uid, gid, name) = find_user(user)?;
                (uid, gid, Some(name))
            }
        };
        let gid = match group {
            Some(group) if !group.is_empty() => find_group(group)?,
            _ => own_gid,
        };
        let groups = name.map_or(Ok(vec![gid]), |name| groups_of(&name, gid))?;
        Ok(User { uid, gid, groups })
    }

    /// Makes the calling thread, which must be the only one, run as this user, and keeps these powers. Does
    /// nothing if the process already runs as this user.
    ///
    /// # Errors
    /// The process lacks permission; it may then be in an intermediate state.
    pub fn switch_to(&self, powers: Powers) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        if rustix::process::geteuid() == uid && rustix::process::getegid() == gid {
            return Ok(());
        }
        set_keep_capabilities(true)?;
        let groups: Vec<Gid> = self.groups.iter().map(|g| Gid::from_raw(*g)).collect();
        set_thread_groups(&groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        if uid.is_root() {
            return Ok(());
        }
        let kept = powers.capabilities();
        let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets)?;
        set_keep_capabilities(false)?;
        Ok(())
    }
}

fn unknown(what: &str, name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no {what} {name}"))
}

fn c_name(what: &str, name: &str) -> io::Result<CString> {
    CString::new(name).map_err(|_| unknown(what, name))
}

/// Number, group and name of a user.
fn find_user(name: &str) -> io::Result<(u32, u32, CString)> {
    let mut buf = vec![0_u8; ENTRY_BYTES];
    // SAFETY: plain integers and pointers for which all zeros are valid.
    let mut entry: libc::passwd = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::passwd = std::ptr::null_mut();
    let (at, len) = (buf.as_mut_ptr().cast(), buf.len());
    let failed = match name.parse::<u32>() {
        // SAFETY: all pointers are to values that live through the call, and the length is the buffer's.
        Ok(uid) => unsafe { libc::getpwuid_r(uid, &mut entry, at, len, &mut found) },
        Err(_) => {
            let name = c_name("user", name)?;
            // SAFETY: the same; the name ends with a zero.
            unsafe { libc::getpwnam_r(name.as_ptr(), &mut entry, at, len, &mut found) }
        }
    };
    if failed != 0 {
        return Err(io::Error::from_raw_os_error(failed));
    }
    if found.is_null() {
        return Err(unknown("user", name));
    }
    // SAFETY: an entry was found, so its name points to a string with a zero at its end within the buffer.
    let own_name = unsafe { std::ffi::CStr::from_ptr(entry.pw_name) }.to_owned();
    Ok((entry.pw_uid, entry.pw_gid, own_name))
}

/// Number of a group.
fn find_group(name: &str) -> io::Result<u32> {
    if let Ok(gid) = name.parse() {
        return Ok(gid);
    }
    let c_name = c_name("group", name)?;
    let mut buf = vec![0_u8; ENTRY_BYTES];
    // SAFETY: plain integers and pointers for which all zeros are valid.
    let mut entry: libc::group = unsafe { std::mem::zeroed() };
    let mut found: *mut libc::group = std::ptr::null_mut();
    // SAFETY: all pointers are to values that live through the call, the length is the buffer's, the name ends with a zero.
    let failed = unsafe {
        libc::getgrnam_r(c_name.as_ptr(), &mut entry, buf.as_mut_ptr().cast(), buf.len(), &mut found)
    };
    match failed {
        0 if found.is_null() => Err(unknown("group", name)),
        0 => Ok(entry.gr_gid),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// All groups of a user, `gid` among them.
fn groups_of(user: &CString, gid: u32) -> io::Result<Vec<u32>> {
    let mut groups = vec![0; GROUPS_MAX];
    let mut count = GROUPS_MAX as libc::c_int;
    // SAFETY: the name ends with a zero, and there is room for `count` groups.
    let got = unsafe { libc::getgrouplist(user.as_ptr(), gid, groups.as_mut_ptr(), &mut count) };
    if got < 0 {
        return Err(io::Error::other("the user is in too many groups"));
    }
    groups.truncate(count.max(0) as usize);
    Ok(groups)
}
