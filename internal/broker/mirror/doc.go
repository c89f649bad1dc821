// Package mirror drives mirrors: it carries out what core/mirror decides.
package mirror
