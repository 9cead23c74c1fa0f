//! The texts around and inside of PEM blocks.

use super::super::{Damage, Field, Fingerprint, Problem, describe, judge};
use super::material::{block, leaf, p256, pem, rsa};
use super::{accepted, refusals};

const DAMAGED_AT_1: &str = "tls.crt is damaged at line 1: ";

#[test]
fn a_pair_is_kept_verbatim() {
    let issued = leaf().self_signed();
    let crt = format!("some words\n{}\n\nand more", issued.crt());
    let key = issued.pem();
    let pair = accepted(&crt, &key);
    assert_eq!((pair.certificate(), pair.key().expose()), (&*crt, &*key));
    assert_eq!(pair.fingerprint(), Fingerprint::of(&crt, &key));
}

#[test]
fn what_the_certificate_of_a_pair_says_is_known_without_its_key() {
    let issued = leaf().self_signed();
    let pair = accepted(&issued.crt(), &issued.pem());
    assert_eq!(describe(&issued.crt()).as_ref(), Some(pair.facts()));
    assert_eq!(describe("no certificate"), None);
}

#[test]
fn of_a_chain_that_would_be_refused_the_leaf_alone_is_described() {
    let (issued, other) = (leaf().self_signed(), leaf().key(p256()).self_signed());
    let described =
        |others: usize| describe(&(issued.crt() + &other.crt().repeat(others))).unwrap();
    assert_eq!(described(100).serial(), described(0).serial());
    assert_eq!(described(100), described(0), "a self-signed leaf ends its chain");
}

#[test]
fn texts_that_no_pair_needs_are_refused_by_their_length_alone() {
    let issued = leaf().self_signed();
    let padded = |text: String, kib: usize| "\n".repeat((kib << 10) - text.len()) + &text;
    accepted(&padded(issued.crt(), 256), &padded(issued.pem(), 32));
    assert_eq!(
        refusals(&padded(format!(" \n{}", issued.crt()), 257), &padded(issued.pem(), 33)),
        [
            "tls.crt is longer than 256 KiB; keep only what the server needs in it",
            "tls.key is longer than 32 KiB; keep only what the server needs in it",
        ]
    );
}

#[test]
fn a_chain_that_openssls_clients_refuse_is_refused_however_many_or_large_its_certificates_are() {
    let issued = leaf().key(p256()).self_signed();
    let chain = |count: usize| issued.crt().repeat(count);
    accepted(&chain(100), &issued.pem());
    let too_long = "tls.crt has more than 100 certificates or 100 KiB of them, and clients that use \
                    OpenSSL refuse such a chain; keep the server's certificate and its intermediates";
    assert_eq!(refusals(&chain(101), &issued.pem()), [too_long]);
    let names: Vec<_> = (0..1_000).map(|number| format!("host-{number}.example.com")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let large = leaf().key(p256()).dns(&names).self_signed();
    assert_eq!(refusals(&large.crt().repeat(5), &large.pem()), [too_long]);
}

#[test]
fn a_fingerprint_tells_where_the_certificate_ends() {
    assert_ne!(Fingerprint::of("ab", "c"), Fingerprint::of("a", "bc"));
    let shown = Fingerprint::of("a", "b");
    assert_eq!(shown.to_string().len(), 64);
    assert_eq!(format!("{shown:?}"), format!("Fingerprint({shown})"));
}

#[test]
fn absent_fields_are_problems_of_their_own() {
    assert_eq!(refusals("", ""), ["tls.crt is missing or empty", "tls.key is missing or empty"]);
    let issued = leaf().self_signed();
    assert_eq!(refusals(&issued.crt(), ""), ["tls.key is missing or empty"]);
    assert_eq!(refusals("", &issued.pem()), ["tls.crt is missing or empty"]);
}

#[test]
fn texts_without_pem_are_refused() {
    assert_eq!(
        refusals("hello", "\n"),
        [
            "tls.crt has no certificate: there is no -----BEGIN CERTIFICATE----- line",
            "tls.key has no private key: there is no -----BEGIN PRIVATE KEY----- line, nor one for an RSA or EC key",
        ]
    );
}

#[test]
fn bytes_that_are_not_text_are_refused_per_field() {
    let issued = leaf().self_signed();
    let der = issued.x509.to_der().unwrap();
    let problems = judge(&der, &[0xff]).unwrap_err();
    assert_eq!(
        problems,
        [Problem::NotText { field: Field::Certificate }, Problem::NotText { field: Field::Key }]
    );
}

#[test]
fn windows_line_ends_blank_lines_and_spaces_at_line_ends_are_fine() {
    let issued = leaf().self_signed();
    for (from, to) in [("\n", "\r\n"), ("\n", "\n\n"), ("\n", " \t\n"), ("\n", "\r\n\r\n")] {
        accepted(&issued.crt().replace(from, to), &issued.pem().replace(from, to));
    }
    accepted(issued.crt().trim_end(), issued.pem().trim_end());
}

#[test]
fn the_dump_of_openssl_and_trailing_text_are_fine() {
    let issued = leaf().self_signed();
    let dump = String::from_utf8(issued.x509.to_text().unwrap()).unwrap();
    let bag = "Bag Attributes\n    localKeyID: 01 02\nKey Attributes: <No Attributes>\n";
    accepted(
        &format!("{dump}{}\nissued -- by hand", issued.crt()),
        &format!("{bag}{}-----\n", issued.pem()),
    );
}

#[test]
fn old_macintosh_line_ends_are_refused() {
    let issued = leaf().self_signed();
    let problems = refusals(&issued.crt().replace('\n', "\r"), &issued.pem());
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with(DAMAGED_AT_1), "{problems:?}");
}

#[test]
fn a_byte_order_mark_an_indent_or_a_lost_dash_is_pointed_out() {
    let issued = leaf().self_signed();
    let begin = "the BEGIN marker must be a line of its own, without spaces or other bytes before it and with five dashes at both ends";
    for broken in [
        format!("\u{feff}{}", issued.crt()),
        format!("  {}", issued.crt()),
        issued.crt().replacen("-----BEGIN", "----BEGIN", 1),
        issued.crt().replacen("CERTIFICATE-----", "CERTIFICATE----", 1),
    ] {
        let problems = refusals(&broken, &issued.pem());
        assert_eq!(problems[0], format!("{DAMAGED_AT_1}{begin}"));
    }
}

#[test]
fn files_joined_without_a_line_break_are_pointed_out() {
    let (one, two) = (leaf().self_signed(), leaf().self_signed());
    let joined = format!("{}{}", one.crt().trim_end(), two.crt());
    let problems = refusals(&joined, &one.pem());
    assert!(problems[0].ends_with("share one line; put a line break between them"), "{problems:?}");
}

#[test]
fn every_kind_of_broken_block_is_refused() {
    let issued = leaf().self_signed();
    let crt = issued.crt();
    let cut = &crt[..crt.len() / 2];
    let damage_of = |text: &str| match judge(text.as_bytes(), issued.pem().as_bytes()) {
        Err(problems) => match problems[0] {
            Problem::Damaged { field: Field::Certificate, damage, .. } => Some(damage),
            _ => None,
        },
        Ok(_) => None,
    };
    assert_eq!(damage_of(cut), Some(Damage::NoEnd));
    assert_eq!(damage_of(&format!("{cut}\n{crt}")), Some(Damage::NoEnd));
    assert_eq!(damage_of(&format!("{crt}-----END CERTIFICATE-----\n")), Some(Damage::NoBegin));
    assert_eq!(damage_of(&crt.replace("END CERTIFICATE", "END X")), Some(Damage::OtherEnd));
    assert_eq!(
        damage_of(&crt.replace("END CERTIFICATE-----", "END CERTIFICATE")),
        Some(Damage::EndLine)
    );
    assert_eq!(damage_of(&crt.replacen("MII", "M!I", 1)), Some(Damage::NotBase64));
    assert_eq!(damage_of(&crt.replacen("MII", "MI", 1)), Some(Damage::NotBase64));
    assert_eq!(damage_of(&crt), None);
}

#[test]
fn a_damaged_block_in_the_middle_is_not_skipped() {
    let root = super::material::authority("root").self_signed();
    let issued = leaf().by(&root);
    let chain = format!("{}{}{}", issued.crt(), root.crt().replacen("MII", "M!I", 1), root.crt());
    let problems = refusals(&chain, &issued.pem());
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].ends_with("the block's content is not base64"));
}

#[test]
fn pem_headers_are_refused() {
    let issued = leaf().self_signed();
    let crt = issued.crt().replacen("-----\n", "-----\nComment: mine\n\n", 1);
    let key = issued.pem().replacen("-----\n", "-----\nComment: mine\n\n", 1);
    let hear = |field| {
        format!(
            "{field} has PEM headers at line 2, which the router does not accept; export the block again without them"
        )
    };
    assert_eq!(refusals(&crt, &key), [hear("tls.crt"), hear("tls.key")]);
}

#[test]
fn encrypted_keys_are_refused_in_both_forms() {
    let issued = leaf().key(rsa(2048)).self_signed();
    let cipher = openssl::symm::Cipher::aes_256_cbc();
    let modern = issued.key.private_key_to_pem_pkcs8_passphrase(cipher, b"open").unwrap();
    let old = issued.key.rsa().unwrap().private_key_to_pem_passphrase(cipher, b"open").unwrap();
    for key in [modern, old] {
        let key = String::from_utf8(key).unwrap();
        let why = "the private key at line 1 of tls.key is encrypted, and the router can't ask for its passphrase; store it unencrypted";
        assert_eq!(refusals(&issued.crt(), &key), [why]);
    }
}

#[test]
fn foreign_blocks_are_refused_and_only_known_labels_are_repeated() {
    let issued = leaf().self_signed();
    let with = |label| refusals(&format!("{}{}", issued.crt(), block(label, &[1])), &issued.pem());
    for label in ["DH PARAMETERS", "X509 CRL", "TRUSTED CERTIFICATE", "CERTIFICATE REQUEST"] {
        let problems = with(label);
        assert_eq!(problems.len(), 1);
        assert!(
            problems[0].ends_with(&format!("that the router refuses: {label}")),
            "{problems:?}"
        );
    }
    let problems = with("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC");
    assert!(problems[0].ends_with("refuses: a label that it does not know"), "{problems:?}");
}

#[test]
fn a_private_key_in_the_certificate_field_is_refused() {
    let issued = leaf().self_signed();
    let problems = refusals(&format!("{}{}", issued.pem(), issued.crt()), &issued.pem());
    assert_eq!(problems.len(), 1);
    assert!(
        problems[0].starts_with("tls.crt has a private key at line 1; keep it in tls.key only")
    );
}

#[test]
fn a_certificate_in_the_key_field_is_refused() {
    let issued = leaf().self_signed();
    let problems = refusals(&issued.crt(), &format!("{}{}", issued.crt(), issued.pem()));
    assert_eq!(problems.len(), 1);
    assert!(problems[0].starts_with("tls.key has a certificate at line 1,"), "{problems:?}");
}

#[test]
fn swapped_fields_are_told_from_both_sides() {
    let issued = leaf().self_signed();
    let problems = refusals(&issued.pem(), &issued.crt());
    assert!(problems[0].starts_with("tls.crt has a private key"), "{problems:?}");
    assert!(problems[1].starts_with("tls.key has a certificate"), "{problems:?}");
}

#[test]
fn several_private_keys_are_refused() {
    let issued = leaf().self_signed();
    let two = format!("{}{}", issued.pem(), pem(&p256()));
    let why = "tls.key has 2 private keys; keep only the one that belongs to the first certificate of tls.crt";
    assert_eq!(refusals(&issued.crt(), &two), [why]);
}

#[test]
fn ec_parameters_are_ignored_as_by_the_router() {
    let issued = leaf().self_signed();
    let parameters = block("EC PARAMETERS", &[6, 8, 42, 134, 72, 206, 61, 3, 1, 7]);
    accepted(&format!("{}{parameters}", issued.crt()), &format!("{parameters}{}", issued.pem()));
}

#[test]
fn public_keys_are_refused_in_both_fields_as_by_the_newest_router() {
    let issued = leaf().self_signed();
    let public = String::from_utf8(issued.key.public_key_to_pem().unwrap()).unwrap();
    for label in ["PUBLIC KEY", "RSA PUBLIC KEY", "DSA PUBLIC KEY", "ECDSA PUBLIC KEY"] {
        let public = public.replace("PUBLIC KEY", label);
        let hear = |field| {
            format!(
                "{field} has a public key at line 1, which the router refuses; it is not needed, so remove it"
            )
        };
        assert_eq!(
            refusals(&(public.clone() + &issued.crt()), &(public + &issued.pem())),
            [hear("tls.crt"), hear("tls.key")]
        );
    }
}

#[test]
fn an_unreadable_certificate_is_named_by_its_place() {
    let issued = leaf().self_signed();
    let mut der = issued.x509.to_der().unwrap();
    der.push(0);
    let with = |der: &[u8]| {
        refusals(&format!("{}{}", issued.crt(), block("CERTIFICATE", der)), &issued.pem())
    };
    let why = "certificate 2 of tls.crt can't be read: there is extra data after the certificate in its PEM block";
    assert_eq!(with(&der), [why]);
    assert_eq!(
        with(&[]),
        ["certificate 2 of tls.crt can't be read: it is not an X.509 certificate"]
    );
}

#[test]
fn every_problem_is_told_and_not_only_the_first() {
    let weak = leaf().key(rsa(1024)).self_signed();
    let other = super::material::ec(openssl::nid::Nid::SECP256K1);
    let problems = refusals(
        &format!("{}{}", weak.crt(), block("X509 CRL", &[1])),
        &format!("{}{}", pem(&other), block("DH PARAMETERS", &[1])),
    );
    assert_eq!(problems.len(), 3, "{problems:?}");
}

#[test]
fn a_megabyte_of_anything_is_answered_with_a_short_list() {
    let megabyte = |piece: &str| piece.repeat((1 << 20) / piece.len());
    let issued = leaf().self_signed();
    let no_end = issued.crt().replace("-----END CERTIFICATE-----\n", "");
    for text in [
        megabyte("-----BEGIN "),
        megabyte("-----BEGIN \n"),
        megabyte("-----BEGIN CERTIFICATE-----\n"),
        megabyte("-----BEGIN A-----\n-----END A-----\n"),
        megabyte("-----END CERTIFICATE-----\n"),
        megabyte("\n"),
        megabyte("A"),
        megabyte(":"),
        megabyte("-"),
        megabyte(&no_end),
        format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", megabyte("MIIB")),
        format!("-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n", megabyte("MIIB")),
    ] {
        let problems = judge(text.as_bytes(), text.as_bytes()).unwrap_err();
        assert!((2..=42).contains(&problems.len()), "{}", problems.len());
    }
    let garbage: Vec<u8> =
        (0..1u32 << 20).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    assert_eq!(judge(&garbage, &garbage).unwrap_err().len(), 2);
}

#[test]
fn a_megabyte_of_certificates_is_answered() {
    let issued = leaf().self_signed();
    let crt = issued.crt();
    let chain = crt.repeat((1 << 20) / crt.len());
    assert_eq!(refusals(&chain, &issued.pem()).len(), 1);
    let nested = block("CERTIFICATE", &[0x30, 0x80].repeat(40_000));
    assert_eq!(refusals(&nested, &issued.pem()).len(), 1);
}

#[test]
fn nothing_of_a_key_is_in_any_message() {
    let issued = leaf().self_signed();
    let key = issued.pem();
    let secret = key.lines().nth(1).unwrap();
    let shown = |result: Result<_, _>| format!("{result:?}");
    let mut said = vec![shown(judge(issued.crt().as_bytes(), key.as_bytes()))];
    for (from, to) in
        [("-----END", "END"), ("\n", ""), ("-----\n", "----- "), ("BEGIN", "BEGIN x:"), ("M", "M:")]
    {
        let broken = key.replacen(from, to, 1);
        said.push(shown(judge(issued.crt().as_bytes(), broken.as_bytes())));
        said.extend(refusals(&broken, &broken));
    }
    said.push(shown(judge(key.as_bytes(), key.as_bytes())));
    assert!(
        said.iter().all(|text| !text.contains(&secret[..16]) && !text.contains(&secret[40..56]))
    );
}
