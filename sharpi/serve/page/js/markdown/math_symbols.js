// The names of TeX that stand for one symbol.

function paired(names, symbols) {
  const each = [...symbols];
  return Object.fromEntries(names.split(" ").map((name, i) => [name, each[i]]));
}

export const SYMBOLS = {
  ...paired(
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega",
    "αβγδϵζηθικλμνξπρστυϕχψω",
  ),
  ...paired("varepsilon vartheta varphi varrho varsigma", "εϑφϱς"),
  ...paired("Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega", "ΓΔΘΛΞΠΣΥΦΨΩ"),
  ...paired("cdot times div pm mp ast star circ bullet oplus otimes setminus", "⋅×÷±∓∗⋆∘∙⊕⊗∖"),
  ...paired("le leq ge geq ne neq ll gg approx equiv sim simeq cong propto mid parallel perp", "≤≤≥≥≠≠≪≫≈≡∼≃≅∝∣∥⊥"),
  ...paired("in notin ni subset subseteq supset supseteq cup cap emptyset varnothing", "∈∉∋⊂⊆⊃⊇∪∩∅∅"),
  ...paired("to rightarrow leftarrow leftrightarrow mapsto uparrow downarrow", "→→←↔↦↑↓"),
  ...paired("Rightarrow Leftarrow Leftrightarrow implies iff longrightarrow", "⇒⇐⇔⟹⟺⟶"),
  ...paired("forall exists nexists neg lnot land lor wedge vee therefore because", "∀∃∄¬¬∧∨∧∨∴∵"),
  ...paired("sum prod coprod int iint iiint oint bigcup bigcap", "∑∏∐∫∬∭∮⋃⋂"),
  ...paired("infty partial nabla hbar ell Re Im aleph angle degree triangle", "∞∂∇ℏℓℜℑℵ∠°△"),
  ...paired("ldots cdots vdots ddots dots prime langle rangle lfloor rfloor lceil rceil", "…⋯⋮⋱…′⟨⟩⌊⌋⌈⌉"),
  ...paired("{ } | % $ & _ # vert Vert lbrace rbrace", "{}‖%$&_#|‖{}"),
};
export const FENCES = { ...SYMBOLS, lvert: "|", rvert: "|", lbrack: "[", rbrack: "]" };
export const LIMITS = "sum prod coprod bigcup bigcap lim max min sup inf limsup liminf argmax argmin".split(" ");
export const FUNCTIONS = [
  ..."sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh log ln lg exp det dim ker gcd deg Pr bmod".split(" "),
  ..."lim max min sup inf limsup liminf argmax argmin mod".split(" "),
];
export const SPACES = { ",": 0.17, ":": 0.22, ";": 0.28, "!": 0, " ": 0.3, quad: 1, qquad: 2, "\\": 1 };
export const ACCENTS = {
  hat: ["^", "mover"],
  widehat: ["^", "mover"],
  bar: ["¯", "mover"],
  overline: ["‾", "mover"],
  vec: ["→", "mover"],
  dot: ["˙", "mover"],
  ddot: ["¨", "mover"],
  tilde: ["~", "mover"],
  widetilde: ["~", "mover"],
  underline: ["_", "munder"],
};

const DOUBLE_STRUCK = { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" };

export function DOUBLE(letter) {
  return DOUBLE_STRUCK[letter] ?? letter;
}

export function BOLD(letter) {
  const code = letter.codePointAt(0);
  if (letter >= "A" && letter <= "Z") return String.fromCodePoint(0x1d400 + code - 65);
  if (letter >= "a" && letter <= "z") return String.fromCodePoint(0x1d41a + code - 97);
  return letter;
}
