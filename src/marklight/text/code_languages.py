"""Names of programming languages in code fences: `py`, `python3` and `python` are one language.

Each line of the table is a language with the names that Pygments has for it (its lexer's aliases), without names of
dialects that people search for separately. A test compares the table with Pygments. Names that are not listed are
languages of their own.
"""

from __future__ import annotations

from functools import cache

_NAMES = """\
actionscript as
apacheconf aconf apache
autohotkey ahk
awk gawk mawk nawk
bash sh ksh zsh shell
batch bat dosbatch winbatch
bibtex bib
caddyfile caddy
clojure clj
clojurescript cljs
coffeescript coffee-script coffee
common-lisp cl lisp
console shell-session
cpp c++
crystal cr
csharp c# cs
cuda cu
cython pyx pyrex
delphi pas pascal objectpascal
diff udiff
django jinja
docker dockerfile
elixir ex exs
emacs-lisp elisp emacs
fish fishshell
fortran f90
fsharp f#
gas asm
gdscript gd
gherkin cucumber
go golang
graphviz dot
haskell hs
html+django html+jinja htmldjango
ini cfg dosini
javascript js
json-ld jsonld
jsx react
julia jl
make makefile mf bsdmake
markdown md
mathematica mma nb wl wolfram
nim nimrod
nix nixos
objective-c objectivec obj-c objc
org orgmode org-mode
perl pl
php php3 php4 php5
postgresql postgres
powershell pwsh posh ps1 psm1
properties jproperties
protobuf proto
pug jade
purescript purs
pycon python-console
python py python3 py3 pyi
python2 py2
racket rkt
raku perl6 pl6
reason reasonml
restructuredtext rst rest
ruby rb
rust rs
scheme scm
splus s r
systemverilog sv
terraform tf hcl
tex latex
tsql t-sql
typescript ts
vb.net vbnet visual-basic visualbasic
verilog v
wast wat
yaml yml
"""


def language_names(language: str) -> tuple[str, ...]:
    """Return all names of a language in lower case, the given one included."""
    name = language.lower()
    return _languages().get(name, (name,))


@cache
def _languages() -> dict[str, tuple[str, ...]]:
    groups = [tuple(line.split()) for line in _NAMES.splitlines()]
    return {name: group for group in groups for name in group}
