//! Which addresses may be dialled.
//!
//! Names can be made to resolve to anything, a cloud's metadata service included, so what counts is
//! the address that is about to be dialled, after resolving. Public addresses are fine; every other
//! has to be allowed by the operator. An IPv6 address that carries an IPv4 one is judged by that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use ipnet::IpNet;

/// What may be dialled besides public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    allowed: Vec<IpNet>,
    denied_to_clients: Vec<IpNet>,
}

impl Addresses {
    /// Public addresses, and those in `allowed`.
    pub fn new(allowed: Vec<IpNet>) -> Self {
        Self {
            allowed,
            denied_to_clients: Vec::new(),
        }
    }

    /// The same without `denied`, for requests whose host a client of forward mode chose.
    pub fn denied_to_clients(self, denied: Vec<IpNet>) -> Self {
        Self {
            denied_to_clients: denied,
            ..self
        }
    }

    /// May this address be dialled?
    ///
    /// ```
    /// use app::exchange::Addresses;
    ///
    /// let addresses = Addresses::new(vec!["10.1.0.0/16".parse().unwrap()]);
    /// assert!(addresses.permit("93.184.215.14".parse().unwrap()));
    /// assert!(addresses.permit("10.1.2.3".parse().unwrap()));
    /// assert!(!addresses.permit("::ffff:169.254.169.254".parse().unwrap()));
    /// ```
    pub fn permit(&self, address: IpAddr) -> bool {
        let plain = unwrapped(address);
        let is_allowed = |address: &IpAddr| self.allowed.iter().any(|net| net.contains(address));
        is_public(plain) || is_allowed(&plain) || is_allowed(&address)
    }

    /// May it be dialled for a client of forward mode?
    pub fn permit_client(&self, address: IpAddr) -> bool {
        let plain = unwrapped(address);
        let mut denied = self.denied_to_clients.iter();
        self.permit(address) && !denied.any(|net| net.contains(&plain) || net.contains(&address))
    }
}

/// The IPv4 address that an IPv6 address stands for, if it does.
fn unwrapped(address: IpAddr) -> IpAddr {
    let IpAddr::V6(v6) = address else {
        return address;
    };
    let segments = v6.segments();
    let carries_v4 = v6.to_ipv4_mapped().is_some()
        // The well-known prefix of translators; the local one of RFC 8215 stays what it is.
        || segments[..6] == [0x64, 0xff9b, 0, 0, 0, 0];
    if carries_v4 {
        let [.., a, b, c, d] = v6.octets();
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    } else {
        address
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !in_any(u128::from(u32::from(address)), 32, V4_SPECIAL),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Only 2000::/3 has been handed out for the public internet.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let bits = u128::from(address);
    bits >> 125 == 0b001 && !in_any(bits, 128, V6_SPECIAL)
}

fn in_any(bits: u128, width: u32, ranges: &[(u128, u32)]) -> bool {
    ranges
        .iter()
        .any(|&(network, prefix)| bits >> (width - prefix) == network >> (width - prefix))
}

const fn v4(a: u8, b: u8, c: u8, d: u8) -> u128 {
    u32::from_be_bytes([a, b, c, d]) as u128
}

/// The special-purpose registry of IANA for IPv4: everything that is not on the public internet.
const V4_SPECIAL: &[(u128, u32)] = &[
    (v4(0, 0, 0, 0), 8),        // this network
    (v4(10, 0, 0, 0), 8),       // private
    (v4(100, 64, 0, 0), 10),    // shared by carriers
    (v4(127, 0, 0, 0), 8),      // loopback
    (v4(168, 63, 129, 16), 32), // Azure's own services for its machines, metadata among them
    (v4(169, 254, 0, 0), 16),   // link-local, where clouds keep their metadata
    (v4(172, 16, 0, 0), 12),    // private
    (v4(192, 0, 0, 0), 24),     // protocol assignments
    (v4(192, 0, 2, 0), 24),     // documentation
    (v4(192, 88, 99, 0), 24),   // relays of 6to4
    (v4(192, 168, 0, 0), 16),   // private
    (v4(198, 18, 0, 0), 15),    // benchmarks
    (v4(198, 51, 100, 0), 24),  // documentation
    (v4(203, 0, 113, 0), 24),   // documentation
    (v4(224, 0, 0, 0), 4),      // multicast
    (v4(240, 0, 0, 0), 4),      // reserved, broadcast
];

const fn v6(a: u16, b: u16) -> u128 {
    ((a as u128) << 112) | ((b as u128) << 96)
}

/// What lies within 2000::/3 and is not on the public internet all the same.
const V6_SPECIAL: &[(u128, u32)] = &[
    (v6(0x2001, 0), 23),     // protocol assignments, Teredo among them
    (v6(0x2001, 0xdb8), 32), // documentation
    (v6(0x2002, 0), 16),     // 6to4: carries any IPv4 address, and is not used
    (v6(0x3fff, 0), 20),     // documentation
];

#[cfg(test)]
mod tests {
    use super::*;

    fn permitted(address: &str) -> bool {
        Addresses::default().permit(address.parse().unwrap())
    }

    #[test]
    fn permits_public_addresses() {
        for address in [
            "1.1.1.1",
            "93.184.215.14",
            "168.63.129.15",
            "168.63.129.17",
            "172.32.0.1",
            "100.128.0.1",
            "198.20.0.1",
            "2606:4700:4700::1111",
            "2a00:1450:4001:81b::200e",
            "::ffff:1.1.1.1",
            "64:ff9b::101:101",
        ] {
            assert!(permitted(address), "{address}");
        }
    }

    #[test]
    fn refuses_every_special_address() {
        for address in [
            "0.0.0.0",
            "10.0.0.1",
            "100.64.0.1",
            "127.0.0.1",
            "127.255.255.254",
            "168.63.129.16",
            "::ffff:168.63.129.16",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.168.1.1",
            "198.19.0.1",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "3fff::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "ff02::1",
            "100::1",
        ] {
            assert!(!permitted(address), "{address}");
        }
    }

    #[test]
    fn denies_clients_networks_in_every_form() {
        let networks = |text: &str| vec![text.parse().unwrap()];
        let addresses = Addresses::new(networks("10.0.0.0/8"));
        let addresses = addresses.denied_to_clients(networks("10.1.0.0/16"));
        for (address, permitted) in [
            ("10.2.0.1", true),
            ("10.1.0.1", false),
            ("::ffff:10.1.0.1", false),
            ("192.168.0.1", false),
            ("1.1.1.1", true),
        ] {
            let address = address.parse().unwrap();
            assert_eq!(addresses.permit_client(address), permitted, "{address}");
        }
        assert!(addresses.permit("10.1.0.1".parse().unwrap()));
    }

    #[test]
    fn permits_allowed_addresses_in_every_form() {
        let addresses = Addresses::new(vec!["127.0.0.0/8".parse().unwrap()]);
        assert!(addresses.permit("127.0.0.1".parse().unwrap()));
        assert!(addresses.permit("::ffff:127.0.0.1".parse().unwrap()));
        assert!(!addresses.permit("10.0.0.1".parse().unwrap()));
    }
}
