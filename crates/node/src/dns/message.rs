//! Questions and answers of the domain name system, as far as a cluster needs them. Pure.

use std::net::Ipv4Addr;

/// Types of records.
pub const A: u16 = 1;
/// See [`A`].
pub const SRV: u16 = 33;
/// See [`A`].
pub const ANY: u16 = 255;

/// How an answer went.
pub const GOOD: u8 = 0;
/// See [`GOOD`].
pub const SERVER_FAILURE: u8 = 2;
/// See [`GOOD`].
pub const NO_SUCH_NAME: u8 = 3;

/// Seconds for which an answer may be kept.
const TTL: u32 = 5;
const HEADER: usize = 12;
/// What every client takes in one packet, and what those take who say that they take more.
const SHORT_PACKET: usize = 512;
const LONG_PACKET: usize = 1232;

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The name in small letters, without the last dot.
    pub name: String,
    /// The type of records.
    pub kind: u16,
    /// Where the question ends in the message.
    end: usize,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An address.
    Address(Ipv4Addr),
    /// A port and the name of its host.
    Service(u16, String),
}

/// The one question of a query; anything else is none.
pub fn parse(message: &[u8]) -> Option<Question> {
    let header = message.first_chunk::<HEADER>()?;
    // A standard query with one question.
    if header[2] & 0xf8 != 0 || header[4..6] != [0, 1] {
        return None;
    }
    let mut at = HEADER;
    let mut labels: Vec<String> = Vec::new();
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        match length {
            0 => break,
            1..=63 => {}
            // Questions have no need to point elsewhere.
            _ => return None,
        }
        let label = message.get(at..at + length)?;
        labels.push(std::str::from_utf8(label).ok()?.to_ascii_lowercase());
        at += length;
        if at > HEADER + 255 {
            return None;
        }
    }
    let kind = u16::from_be_bytes(*message.get(at..)?.first_chunk::<2>()?);
    message.get(at..at + 4)?;
    Some(Question { name: labels.join("."), kind, end: at + 4 })
}

/// How long an answer in one packet may be.
pub fn packet_limit(query: &[u8]) -> usize {
    match query.get(10..12) {
        None | Some([0, 0]) => SHORT_PACKET,
        Some(_) => LONG_PACKET,
    }
}

/// The answer to a query; records that do not fit into `limit` bytes are left out, which the answer says.
pub fn reply(query: &[u8], question: &Question, code: u8, records: &[Record], limit: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER);
    out.extend_from_slice(query.get(..2).unwrap_or(&[0, 0]));
    let recursion = query.get(2).copied().unwrap_or(0) & 1;
    // An answer of who knows, who can ask others as well.
    out.extend_from_slice(&[0x84 | recursion, 0x80 | code, 0, 1, 0, 0, 0, 0, 0, 0]);
    out.extend_from_slice(query.get(HEADER..question.end).unwrap_or_default());
    let mut count: u16 = 0;
    for record in records {
        let data = match record {
            Record::Address(ip) => ip.octets().to_vec(),
            Record::Service(port, host) => {
                let mut data = vec![0, 0, 0, 100];
                data.extend_from_slice(&port.to_be_bytes());
                data.extend(encoded(host));
                data
            }
        };
        let kind = match record {
            Record::Address(_) => A,
            Record::Service(..) => SRV,
        };
        if out.len() + 12 + data.len() > limit {
            out[2] |= 0x02;
            break;
        }
        // The name is that of the question.
        out.extend_from_slice(&[0xc0, 0x0c]);
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
        out.extend_from_slice(&TTL.to_be_bytes());
        out.extend_from_slice(&u16::try_from(data.len()).unwrap_or(0).to_be_bytes());
        out.extend_from_slice(&data);
        count += 1;
    }
    out[6..8].copy_from_slice(&count.to_be_bytes());
    out
}

fn encoded(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|label| (1..=63).contains(&label.len())) {
        out.push(u8::try_from(label.len()).unwrap_or(0));
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![7, 9, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        out.extend(encoded(name));
        out.extend_from_slice(&kind.to_be_bytes());
        out.extend_from_slice(&[0, 1]);
        out
    }

    #[test]
    fn a_question_is_answered_with_its_own_name() {
        let asked = query("Web.default.svc", A);
        let question = parse(&asked).unwrap();
        assert_eq!((question.name.as_str(), question.kind), ("web.default.svc", A));
        let answer = reply(&asked, &question, GOOD, &[Record::Address(Ipv4Addr::new(10, 96, 0, 1))], 512);
        assert_eq!(answer[..8], [7, 9, 0x85, 0x80, 0, 1, 0, 1]);
        assert_eq!(answer[12..asked.len()], asked[12..]);
        assert_eq!(answer[asked.len()..], [0xc0, 0x0c, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4, 10, 96, 0, 1]);
    }

    #[test]
    fn an_answer_that_is_too_long_says_so() {
        let asked = query("many", A);
        let many = vec![Record::Address(Ipv4Addr::LOCALHOST); 100];
        let answer = reply(&asked, &parse(&asked).unwrap(), GOOD, &many, packet_limit(&asked));
        assert!(answer.len() <= SHORT_PACKET && answer[2] & 2 == 2);
        let service = [Record::Service(80, "a.b".to_owned())];
        let answer = reply(&asked, &parse(&asked).unwrap(), NO_SUCH_NAME, &service, 512);
        assert!(answer.ends_with(&[0, 80, 1, b'a', 1, b'b', 0]) && answer[3] & 15 == NO_SUCH_NAME);
    }

    #[test]
    fn rubbish_is_no_question() {
        let asked = query("web", A);
        for end in 0..asked.len() {
            assert_eq!(parse(&asked[..end]), None, "{end}");
        }
        let mut pointing = asked.clone();
        pointing[12] = 0xc0;
        assert_eq!(parse(&pointing), None);
        let mut response = asked;
        response[2] |= 0x80;
        assert_eq!(parse(&response), None);
    }
}
