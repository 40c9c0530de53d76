//! Random numbers from the kernel, suited to identifiers and to seeds of keyed hashes.

use std::io;

/// Fills `buf`. Blocks only early after boot, before the kernel has enough entropy.
pub fn fill(buf: &mut [u8]) -> io::Result<()> {
    let mut done = 0;
    while done < buf.len() {
        let rest = &mut buf[done..];
        // SAFETY: pointer and length are those of `rest`.
        let got = unsafe { libc::getrandom(rest.as_mut_ptr().cast(), rest.len(), 0) };
        match usize::try_from(got) {
            Ok(got) => done += got,
            Err(_) => {
                let e = io::Error::last_os_error();
                if e.kind() != io::ErrorKind::Interrupted {
                    return Err(e);
                }
            }
        }
    }
    Ok(())
}

/// 128 random bits.
pub fn u128() -> io::Result<u128> {
    let mut bytes = [0; 16];
    fill(&mut bytes)?;
    Ok(u128::from_ne_bytes(bytes))
}

/// 64 random bits.
pub fn u64() -> io::Result<u64> {
    u128().map(|v| v as u64)
}

/// A random UUID (RFC 9562 §5.4, version 4) as its number.
pub fn uuid() -> io::Result<u128> {
    let random = u128()?;
    let version = 4u128 << 76;
    let variant = 0b10u128 << 62;
    Ok(random & !(0xf << 76) & !(0b11 << 62) | version | variant)
}
