// What the pool would command: every state's score for this state and goal, and the chance that it is chosen.

const dot = (a, b) => a.reduce((sum, x, i) => sum + x * b[i], 0);
const length = (a) => Math.sqrt(dot(a, a));

// dcp.methods.scoring: the highest wins.
const SCORES = {
  inner_product: (state, z, goal) => dot(z, goal),
  cosine: (state, z, goal) => dot(z, goal) / Math.max(length(z) * length(goal), 1e-12),
  energy: (state, z, goal, apart) => -apart(z, goal),
  on_path: (state, z, goal, apart) => -(apart(state, z) + apart(z, goal)),
};

export class Pool {
  constructor({ states, score, candidates }, policy) {
    Object.assign(this, { states, candidates, score: SCORES[score] });
    this.psi = states.map((state) => policy.encode(state).slice());
    this.policy = policy;
  }

  // -> [{state, score, chance}], best first. Training draws C of the P states and takes the best of them, so the
  // chance of rank r is that it is drawn and none of the r better ones is.
  scored(achieved, goal) {
    const state = this.policy.encode(achieved).slice(), aim = this.policy.encode(goal).slice();
    const apart = (from, to) => this.policy.between(from, to);
    const found = this.states.map((place, i) => ({ state: place, score: this.score(state, this.psi[i], aim, apart) }));
    found.sort((a, b) => b.score - a.score);
    const size = found.length, drawn = Math.min(this.candidates, size);
    let none = 1; // the chance that no better state is drawn
    found.forEach((one, r) => {
      const left = size - r; // states that may still hold the draws
      const share = left > 0 ? Math.min(1, drawn / left) : 0;
      one.chance = none * share;
      none *= 1 - share;
    });
    return found;
  }
}
