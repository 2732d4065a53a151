//! Frames of SPDY/3.1, as far as port-forwarding uses them. Pure.

use std::sync::OnceLock;

use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
/// Larger frames and headers are refused.
const LARGEST: usize = 4 * 1024 * 1024;
const LARGEST_HEADERS: usize = 64 * 1024;

/// Words that headers are likely to have: both sides begin with them.
const WORDS: &str = "options|head|post|put|delete|trace|accept|accept-charset|accept-encoding|accept-language|\
accept-ranges|age|allow|authorization|cache-control|connection|content-base|content-encoding|content-language|\
content-length|content-location|content-md5|content-range|content-type|date|etag|expect|expires|from|host|if-match|\
if-modified-since|if-none-match|if-range|if-unmodified-since|last-modified|location|max-forwards|pragma|\
proxy-authenticate|proxy-authorization|range|referer|retry-after|server|te|trailer|transfer-encoding|upgrade|\
user-agent|vary|via|warning|www-authenticate|method|get|status|200 OK|version|HTTP/1.1|url|public|set-cookie|\
keep-alive|origin";
const TEXT: &str = "100101201202205206300302303304305306307402405406407408409410411412413414415416417502504505\
203 Non-Authoritative Information204 No Content301 Moved Permanently400 Bad Request401 Unauthorized403 Forbidden\
404 Not Found500 Internal Server Error501 Not Implemented503 Service UnavailableJan Feb Mar Apr May Jun Jul Aug Sept \
Oct Nov Dec 00:00:00 Mon, Tue, Wed, Thu, Fri, Sat, Sun, GMTchunked,text/html,image/png,image/jpg,image/gif,\
application/xml,application/xhtml+xml,text/plain,text/javascript,publicprivatemax-age=gzip,deflate,sdchcharset=utf-8\
charset=iso-8859-1,utf-,*,enq=0.";

fn dictionary() -> &'static [u8] {
    static DICTIONARY: OnceLock<Vec<u8>> = OnceLock::new();
    DICTIONARY.get_or_init(|| {
        let mut out = Vec::new();
        for word in WORDS.split('|') {
            out.extend(u32::try_from(word.len()).unwrap_or(0).to_be_bytes());
            out.extend(word.as_bytes());
        }
        out.extend(TEXT.as_bytes());
        out
    })
}

/// What the other side says.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// A new stream with its headers; the flag says that nothing will come on it.
    Open(u32, Vec<(String, String)>, bool),
    /// Bytes of a stream; the flag says that they are the last ones.
    Data(u32, Vec<u8>, bool),
    /// A stream is cut off.
    Reset(u32),
    /// To be sent back as it is.
    Ping(Vec<u8>),
    /// The other side leaves.
    Leave,
    /// Nothing that matters here.
    Other,
}

/// Reads frames from bytes that come in pieces.
pub struct Decoder {
    bytes: Vec<u8>,
    headers: Decompress,
}

impl Decoder {
    pub fn new() -> Decoder {
        Decoder { bytes: Vec::new(), headers: Decompress::new(true) }
    }

    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole frame, if it is there.
    pub fn next(&mut self) -> Result<Option<Frame>, String> {
        let Some(head) = self.bytes.first_chunk::<8>() else { return Ok(None) };
        let first = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
        let (flags, length) = (head[4], u32::from_be_bytes([0, head[5], head[6], head[7]]) as usize);
        if length > LARGEST {
            return Err("a frame is too large".to_owned());
        }
        if self.bytes.len() < 8 + length {
            return Ok(None);
        }
        let payload: Vec<u8> = self.bytes.drain(..8 + length).skip(8).collect();
        let fin = flags & FIN != 0;
        if first & 0x8000_0000 == 0 {
            return Ok(Some(Frame::Data(first, payload, fin)));
        }
        let id = || payload.first_chunk::<4>().map_or(0, |id| u32::from_be_bytes(*id) & 0x7fff_ffff);
        Ok(Some(match u16::try_from(first & 0xffff).unwrap_or(0) {
            SYN_STREAM => {
                let block = payload.get(10..).ok_or("a frame is too short")?;
                Frame::Open(id(), self.read_headers(block)?, fin)
            }
            RST_STREAM => Frame::Reset(id()),
            PING => Frame::Ping(payload),
            GOAWAY => Frame::Leave,
            _ => Frame::Other,
        }))
    }

    fn read_headers(&mut self, block: &[u8]) -> Result<Vec<(String, String)>, String> {
        let mut out = Vec::with_capacity(LARGEST_HEADERS);
        let before = self.headers.total_in();
        loop {
            let done = usize::try_from(self.headers.total_in() - before).unwrap_or(usize::MAX);
            let rest = block.get(done..).unwrap_or_default();
            let produced = out.len();
            match self.headers.decompress_vec(rest, &mut out, FlushDecompress::Sync) {
                Ok(Status::StreamEnd) => break,
                Ok(_) => {}
                Err(error) if error.needs_dictionary().is_some() => {
                    self.headers.set_dictionary(dictionary()).map_err(|e| e.to_string())?;
                    continue;
                }
                Err(error) => return Err(error.to_string()),
            }
            let now = usize::try_from(self.headers.total_in() - before).unwrap_or(usize::MAX);
            if now >= block.len() || (now == done && out.len() == produced) {
                break;
            }
            if out.len() >= LARGEST_HEADERS {
                return Err("headers are too large".to_owned());
            }
        }
        parse_headers(&out).ok_or_else(|| "headers cannot be read".to_owned())
    }
}

fn parse_headers(mut bytes: &[u8]) -> Option<Vec<(String, String)>> {
    fn number(bytes: &mut &[u8]) -> Option<usize> {
        let (head, rest) = bytes.split_first_chunk::<4>()?;
        *bytes = rest;
        usize::try_from(u32::from_be_bytes(*head)).ok()
    }
    fn word(bytes: &mut &[u8]) -> Option<String> {
        let length = number(bytes)?;
        let (word, rest) = bytes.split_at_checked(length)?;
        *bytes = rest;
        Some(String::from_utf8_lossy(word).into_owned())
    }
    let count = number(&mut bytes)?;
    let mut headers = Vec::new();
    for _ in 0..count.min(1024) {
        headers.push((word(&mut bytes)?, word(&mut bytes)?));
    }
    Some(headers)
}

/// Writes frames.
pub struct Encoder {
    headers: Compress,
    has_dictionary: bool,
}

impl Encoder {
    pub fn new() -> Encoder {
        Encoder { headers: Compress::new(Compression::default(), true), has_dictionary: false }
    }

    /// Takes a stream that the other side opened.
    pub fn reply(&mut self, stream: u32) -> Result<Vec<u8>, String> {
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend(self.compress(&0_u32.to_be_bytes())?);
        Ok(control(SYN_REPLY, 0, &payload))
    }

    fn compress(&mut self, block: &[u8]) -> Result<Vec<u8>, String> {
        if !self.has_dictionary {
            self.headers.set_dictionary(dictionary()).map_err(|e| e.to_string())?;
            self.has_dictionary = true;
        }
        let mut out = Vec::with_capacity(block.len() + 256);
        self.headers.compress_vec(block, &mut out, FlushCompress::Sync).map_err(|e| e.to_string())?;
        Ok(out)
    }
}

/// Bytes of a stream.
pub fn data(stream: u32, bytes: &[u8], fin: bool) -> Vec<u8> {
    let mut out = (stream & 0x7fff_ffff).to_be_bytes().to_vec();
    out.push(if fin { FIN } else { 0 });
    out.extend(&u32::try_from(bytes.len()).unwrap_or(0).to_be_bytes()[1..]);
    out.extend_from_slice(bytes);
    out
}

/// The answer to a ping.
pub fn pong(payload: &[u8]) -> Vec<u8> {
    control(PING, 0, payload)
}

fn control(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = 0x8003_u16.to_be_bytes().to_vec();
    out.extend(kind.to_be_bytes());
    out.push(flags);
    out.extend(&u32::try_from(payload.len()).unwrap_or(0).to_be_bytes()[1..]);
    out.extend_from_slice(payload);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a client sends it.
    fn open(encoder: &mut Encoder, stream: u32, headers: &[(&str, &str)]) -> Vec<u8> {
        let mut block = u32::try_from(headers.len()).unwrap().to_be_bytes().to_vec();
        for word in headers.iter().flat_map(|(name, value)| [name, value]) {
            block.extend(u32::try_from(word.len()).unwrap().to_be_bytes());
            block.extend(word.as_bytes());
        }
        let mut payload = stream.to_be_bytes().to_vec();
        payload.extend([0; 6]);
        payload.extend(encoder.compress(&block).unwrap());
        control(SYN_STREAM, 0, &payload)
    }

    #[test]
    fn the_dictionary_is_the_standards() {
        assert_eq!(dictionary().len(), 1423);
        let (mut a, mut b) = (1_u32, 0_u32);
        for byte in dictionary() {
            a = (a + u32::from(*byte)) % 65521;
            b = (b + a) % 65521;
        }
        assert_eq!((b << 16) | a, 0xe3c6_a7c2);
    }

    #[test]
    fn streams_data_and_pings_are_read_from_any_pieces() {
        let mut client = Encoder::new();
        let mut bytes = open(&mut client, 1, &[("streamtype", "error"), ("port", "80")]);
        bytes.extend(open(&mut client, 3, &[("streamtype", "data")]));
        bytes.extend(data(3, b"hello", false));
        bytes.extend(pong(&[0, 0, 0, 1]));
        bytes.extend(data(3, b"", true));
        let mut decoder = Decoder::new();
        let mut frames = Vec::new();
        for byte in bytes {
            decoder.push(&[byte]);
            while let Some(frame) = decoder.next().unwrap() {
                frames.push(frame);
            }
        }
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(
            frames,
            [
                Frame::Open(1, vec![pair("streamtype", "error"), pair("port", "80")], false),
                Frame::Open(3, vec![pair("streamtype", "data")], false),
                Frame::Data(3, b"hello".to_vec(), false),
                Frame::Ping(vec![0, 0, 0, 1]),
                Frame::Data(3, Vec::new(), true),
            ]
        );
    }

    #[test]
    fn hostile_bytes_are_errors() {
        for bytes in [
            &b"\x80\x03\x00\x01\x00\x00\x00\x02xx"[..],
            b"\x80\x03\x00\x01\x00\x00\x00\x0caaaabbbbccdd",
            b"\0\0\0\x01\0\xff\xff\xff",
        ] {
            let mut decoder = Decoder::new();
            decoder.push(bytes);
            assert!(decoder.next().is_err());
        }
    }
}
