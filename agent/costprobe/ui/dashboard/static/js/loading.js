// When data of the page is loaded again.

const RETRY_MS = 5000;
// Pause after a load, as a multiple of its duration, to limit CPU use on the host.
const REST_FACTOR = 20;

/** Something that is loaded again at most every so many ms, one load at a time; a failed load is retried. */
export class Loading {
  constructor(everyMs, trouble, load) {
    Object.assign(this, { everyMs, trouble, load, dueMs: 0, timer: null, isBusy: false, isStale: false, isUrgent: false });
  }

  /** Load it when it is due; what a load under way has read may be old by now. */
  refresh() {
    this.isStale = this.isBusy;
    if (this.isBusy || this.timer !== null) return;
    this.timer = setTimeout(() => this.run(), Math.max(0, this.dueMs - Date.now()));
  }

  /** Load it now, or right after the load under way. */
  hurry() {
    this.isUrgent = this.isBusy;
    if (this.isBusy) return;
    clearTimeout(this.timer);
    this.timer = null;
    this.dueMs = 0;
    this.refresh();
  }

  async run() {
    Object.assign(this, { timer: null, isBusy: true, isStale: false, isUrgent: false });
    const begun = Date.now();
    try {
      await this.load();
      this.trouble(null);
      this.dueMs = Date.now() + Math.max(this.everyMs, REST_FACTOR * (Date.now() - begun));
    } catch (error) {
      // A lost server is shown by the state of the connection.
      if (error.status) this.trouble(error.message);
      this.dueMs = Date.now() + RETRY_MS;
      this.isStale = true;
    }
    this.isBusy = false;
    if (this.isUrgent) this.hurry();
    else if (this.isStale) this.refresh();
  }
}
