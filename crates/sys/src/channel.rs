//! [`Channel`]: whole messages with descriptors between two processes (unix(7): `SOCK_SEQPACKET`, `SCM_RIGHTS`).

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Most bytes of a message.
pub const MESSAGE_MAX_BYTES: usize = 1 << 16;
/// Most descriptors of a message.
pub const MESSAGE_MAX_FDS: usize = 64;

/// One end. The other end sees its end when all its descriptors are closed.
#[derive(Debug)]
pub struct Channel(OwnedFd);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd()
    }
}

/// A received message.
#[derive(Debug, Default)]
pub struct Message {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its descriptors, closed on exec.
    pub fds: Vec<OwnedFd>,
}

impl Channel {
    /// Two connected ends; the second as a descriptor for another process.
    pub fn pair() -> io::Result<(Channel, OwnedFd)> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (own, other) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        Ok((Channel(own), other))
    }

    /// The end that another process passed on as standard input.
    ///
    /// # Errors
    /// It is no such socket.
    pub fn of_standard_input() -> io::Result<Channel> {
        let fd = io::stdin().as_fd().try_clone_to_owned()?;
        match rustix::net::sockopt::socket_type(&fd)? {
            SocketType::SEQPACKET => Ok(Channel(fd)),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "standard input is no channel")),
        }
    }

    /// The end of a descriptor of [`Channel::pair`].
    pub fn of(fd: OwnedFd) -> Channel {
        Channel(fd)
    }

    /// Readable when a message waits, or the other end has ended.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }

    /// Sends a message; waits for room.
    ///
    /// # Errors
    /// The message is too long, the other end has ended, or there is no room for that time (`TimedOut`).
    pub fn send(&self, bytes: &[u8], fds: &[BorrowedFd<'_>], limit: Duration) -> io::Result<()> {
        if bytes.len() > MESSAGE_MAX_BYTES || fds.len() > MESSAGE_MAX_FDS {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the message is too long"));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_MAX_FDS))];
        let until = Instant::now() + limit;
        loop {
            let mut control = SendAncillaryBuffer::new(&mut space);
            if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "too many descriptors"));
            }
            match sendmsg(&self.0, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The next message; waits for it. `None`: the other end has ended.
    ///
    /// # Errors
    /// A message was cut short, or none came in that time (`TimedOut`).
    pub fn receive(&self, limit: Duration) -> io::Result<Option<Message>> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MESSAGE_MAX_FDS))];
        let mut bytes = vec![0; MESSAGE_MAX_BYTES];
        let until = Instant::now() + limit;
        loop {
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            let received = match recvmsg(&self.0, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(Errno::AGAIN) => {
                    self.wait(PollFlags::IN, until)?;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Ok(None),
                other => other?,
            };
            let mut fds = Vec::new();
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(received) = message {
                    fds.extend(received);
                }
            }
            if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "a message was cut short"));
            }
            if received.bytes == 0 {
                return Ok(None);
            }
            bytes.truncate(received.bytes);
            return Ok(Some(Message { bytes, fds }));
        }
    }

    fn wait(&self, events: PollFlags, until: Instant) -> io::Result<()> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let limit = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(&self.0, events)], Some(&limit)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_message_arrives_whole_with_its_descriptors() {
        let (a, b) = Channel::pair().unwrap();
        let b = Channel(b);
        let (mut reader, writer) = io::pipe().unwrap();
        a.send(b"first", &[writer.as_fd()], SOON).unwrap();
        drop(writer);
        a.send(&vec![7; MESSAGE_MAX_BYTES], &[], SOON).unwrap();
        let Message { bytes, fds } = b.receive(SOON).unwrap().unwrap();
        assert_eq!((bytes.as_slice(), fds.len()), (&b"first"[..], 1));
        let mut passed = std::fs::File::from(fds.into_iter().next().unwrap());
        passed.write_all(b"through").unwrap();
        drop(passed);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "through");
        assert_eq!(b.receive(SOON).unwrap().unwrap().bytes, vec![7; MESSAGE_MAX_BYTES]);
        assert_eq!(b.receive(Duration::ZERO).unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(a.send(&vec![7; MESSAGE_MAX_BYTES + 1], &[], SOON).is_err());
        drop(a);
        assert!(b.receive(SOON).unwrap().is_none());
        assert!(b.send(b"x", &[], SOON).is_err());
    }

    #[test]
    fn a_full_channel_makes_its_sender_wait_no_longer_than_asked() {
        let (a, _b) = Channel::pair().unwrap();
        let full = std::iter::repeat_with(|| a.send(&[1; 4096], &[], Duration::ZERO)).take(1 << 16);
        let full: Result<Vec<()>, _> = full.collect();
        assert_eq!(full.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
