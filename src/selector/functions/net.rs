//! IP addresses and networks (k8s.io/apiserver/pkg/cel/library: ip.go, cidr.go). Values only: nothing here
//! reaches a network.

use std::fmt;

pub(in super::super) use core::net::IpAddr;

use super::super::budget::charge_bytes;
use super::{Arg, Failed, Native, Out, Plain, native};

/// An address and how many of its bits name the network. Bits behind them are kept as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Cidr {
    address: IpAddr,
    bits: u8,
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// Left-aligned, so that networks of one family compare by their leading bits.
fn aligned(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(a) => u128::from(a.to_bits()) << 96,
        IpAddr::V6(a) => a.to_bits(),
    }
}

fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

impl Cidr {
    fn contains(self, address: IpAddr) -> bool {
        self.address.is_ipv4() == address.is_ipv4() && (aligned(self.address) ^ aligned(address)) & mask(self.bits) == 0
    }

    fn masked(self) -> Self {
        let kept = aligned(self.address) & mask(self.bits);
        let address = match self.address {
            // The upper 32 bits are the address.
            IpAddr::V4(_) => IpAddr::V4(((kept >> 96) as u32).into()),
            IpAddr::V6(_) => IpAddr::V6(kept.into()),
        };
        Self { address, ..self }
    }
}

fn address(text: &str) -> Result<IpAddr, Failed> {
    charge_bytes(text.len())?;
    if text.contains('%') {
        return Err(Failed::Message(format!(
            "IP address {text:?} with zone value is not allowed"
        )));
    }
    match text.parse() {
        Ok(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some() => Err(Failed::Message(format!(
            "IPv4-mapped IPv6 address {text:?} is not allowed"
        ))),
        Ok(address) => Ok(address),
        Err(_) => Err(Failed::Message(format!(
            "IP Address {text:?} parse error during conversion from string"
        ))),
    }
}

fn network(text: &str) -> Result<Cidr, Failed> {
    let bad = || {
        Failed::Message(format!(
            "network address parse error during conversion from string: {text:?}"
        ))
    };
    let (head, bits) = text.rsplit_once('/').ok_or_else(bad)?;
    let address = address(head).map_err(|_| bad())?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    // Go takes no sign and no leading zero.
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && (bits == "0" || !bits.starts_with('0'));
    match bits.parse::<u8>() {
        Ok(bits) if plain && bits <= most => Ok(Cidr { address, bits }),
        _ => Err(bad()),
    }
}

pub(super) const NATIVES: &[Native] = &[
    (
        "ip",
        false,
        1,
        native!("ip", |args| match args {
            [Arg::String(s)] => address(s).map(Out::Ip),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "ip",
        true,
        1,
        native!("ip", |args| match args {
            [Arg::Cidr(c)] => Ok(Out::Ip(c.address)),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "isIP",
        false,
        1,
        native!("isIP", |args| match args {
            [Arg::String(s)] => Ok(Out::Bool(address(s).is_ok())),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "ip.isCanonical",
        false,
        1,
        native!("ip.isCanonical", |args| match args {
            [Arg::String(s)] => Ok(Out::Bool(address(s)?.to_string() == *s)),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "family",
        true,
        1,
        native!("family", |args| match args {
            [Arg::Ip(ip)] => Ok(Out::Int(if ip.is_ipv4() { 4 } else { 6 })),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "isUnspecified",
        true,
        1,
        native!("isUnspecified", |a| test(a, |ip| ip.is_unspecified())),
    ),
    (
        "isLoopback",
        true,
        1,
        native!("isLoopback", |a| test(a, |ip| ip.is_loopback())),
    ),
    (
        "isLinkLocalMulticast",
        true,
        1,
        native!("isLinkLocalMulticast", |a| test(a, |ip| match ip {
            IpAddr::V4(a) => a.octets()[..3] == [224, 0, 0],
            IpAddr::V6(a) => a.segments()[0] & 0xff0f == 0xff02,
        })),
    ),
    (
        "isLinkLocalUnicast",
        true,
        1,
        native!("isLinkLocalUnicast", |a| test(a, link_local)),
    ),
    (
        "isGlobalUnicast",
        true,
        1,
        // As Go has it: private addresses are global unicast too.
        native!("isGlobalUnicast", |a| test(a, |ip| {
            let broadcast = matches!(ip, IpAddr::V4(a) if a.is_broadcast());
            !(broadcast || ip.is_unspecified() || ip.is_loopback() || ip.is_multicast() || link_local(ip))
        })),
    ),
    (
        "cidr",
        false,
        1,
        native!("cidr", |args| match args {
            [Arg::String(s)] => network(s).map(Out::Cidr),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "isCIDR",
        false,
        1,
        native!("isCIDR", |args| match args {
            [Arg::String(s)] => Ok(Out::Bool(network(s).is_ok())),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "containsIP",
        true,
        2,
        native!("containsIP", |args| match args {
            [Arg::Cidr(c), Arg::Ip(ip)] => Ok(Out::Bool(c.contains(*ip))),
            [Arg::Cidr(c), Arg::String(s)] => Ok(Out::Bool(c.contains(address(s)?))),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "containsCIDR",
        true,
        2,
        native!("containsCIDR", |args| {
            let inside = |outer: &Cidr, inner: &Cidr| outer.contains(inner.address) && outer.bits <= inner.bits;
            match args {
                [Arg::Cidr(a), Arg::Cidr(b)] => Ok(Out::Bool(inside(a, b))),
                [Arg::Cidr(a), Arg::String(s)] => Ok(Out::Bool(inside(a, &network(s)?))),
                _ => Err(Failed::Overload),
            }
        }),
    ),
    (
        "prefixLength",
        true,
        1,
        native!("prefixLength", |args| match args {
            [Arg::Cidr(c)] => Ok(Out::Int(i64::from(c.bits))),
            _ => Err(Failed::Overload),
        }),
    ),
    (
        "masked",
        true,
        1,
        native!("masked", |args| match args {
            [Arg::Cidr(c)] => Ok(Out::Cidr(c.masked())),
            _ => Err(Failed::Overload),
        }),
    ),
    // The crate's `string()` knows neither; a fallback for what it does not take.
    (
        "string",
        false,
        1,
        native!("string", |args| match args {
            [Arg::Ip(ip)] => Ok(Out::String(ip.to_string())),
            [Arg::Cidr(c)] => Ok(Out::String(c.to_string())),
            _ => Err(Failed::Overload),
        }),
    ),
];

fn link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(a) => a.is_link_local(),
        IpAddr::V6(a) => a.segments()[0] & 0xffc0 == 0xfe80,
    }
}

fn test(args: &[Arg<'_>], holds: fn(IpAddr) -> bool) -> Plain {
    match args {
        [Arg::Ip(ip)] => Ok(Out::Bool(holds(*ip))),
        _ => Err(Failed::Overload),
    }
}
