package signature

import "time"

// Names of the presets, as configuration spells them.
const (
	PresetGitHub           = "GitHub"
	PresetStandardWebhooks = "StandardWebhooks"
)

// Preset returns the scheme of a provider by its name, and whether there is one.
func Preset(name string) (Scheme, bool) {
	switch name {
	case PresetGitHub:
		return GitHub(), true
	case PresetStandardWebhooks:
		return StandardWebhooks(), true
	default:
		return Scheme{}, false
	}
}

// GitHub is how GitHub signs: hex HMAC-SHA256 of the body in X-Hub-Signature-256. Nothing in it is dated, so a captured
// request stays valid for ever; deduplication by X-GitHub-Delivery, which is not signed, does not change that.
func GitHub() Scheme {
	return Scheme{
		Algorithm:       SHA256,
		Encoding:        Hex,
		Secret:          RawSecret,
		Signed:          "{body}",
		SignatureHeader: "X-Hub-Signature-256",
		Prefix:          "sha256=",
		IDHeader:        "X-GitHub-Delivery",
		TypeHeader:      "X-GitHub-Event",
	}
}

// StandardWebhooks is the symmetric scheme (v1) of the Standard Webhooks specification 1.0.0. Signatures of its
// asymmetric scheme (v1a) beside a v1 one are skipped. The specification leaves the tolerance open; five minutes,
// either way, is what its reference libraries use.
func StandardWebhooks() Scheme {
	return Scheme{
		Algorithm:       SHA256,
		Encoding:        Base64,
		Secret:          WhsecSecret,
		Signed:          "{id}.{timestamp}.{body}",
		SignatureHeader: "Webhook-Signature",
		Prefix:          "v1,",
		Separator:       " ",
		IDHeader:        "Webhook-Id",
		TimestampHeader: "Webhook-Timestamp",
		Tolerance:       5 * time.Minute,
	}
}

// HMAC is the scheme of a sender that signs the raw body and nothing else, with the secret's bytes as they are.
// The arguments come from a user; [New] checks them.
func HMAC(header string, algorithm Algorithm, encoding Encoding, prefix string) Scheme {
	return Scheme{
		Algorithm:       algorithm,
		Encoding:        encoding,
		Secret:          RawSecret,
		Signed:          "{body}",
		SignatureHeader: header,
		Prefix:          prefix,
	}
}
