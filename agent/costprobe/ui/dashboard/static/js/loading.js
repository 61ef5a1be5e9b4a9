// When data of the page is loaded again.

const RETRY_MS = 5000;
// Pause after a load, as a multiple of its duration, to limit CPU use on the host.
const REST_FACTOR = 20;

/** Something that is loaded again at most every so many ms, one load at a time. */
export class Loading {
  constructor(everyMs, trouble, load) {
    Object.assign(this, { everyMs, trouble, load, dueMs: 0, timer: null, isBusy: false, isWanted: false });
  }

  /** Load it when it is due. */
  refresh() {
    if (this.isBusy || this.timer !== null) return;
    this.timer = setTimeout(() => this.run(), Math.max(0, this.dueMs - Date.now()));
  }

  /** Load it now, or again after the load under way, which may have read what is old by now. */
  hurry() {
    this.isWanted = this.isBusy;
    clearTimeout(this.timer);
    this.timer = null;
    this.dueMs = 0;
    this.refresh();
  }

  async run() {
    this.timer = null;
    this.isBusy = true;
    const begun = Date.now();
    try {
      await this.load();
      this.trouble(null);
      this.dueMs = Date.now() + Math.max(this.everyMs, REST_FACTOR * (Date.now() - begun));
    } catch (error) {
      // A lost server is shown by the state of the connection.
      if (error.status) this.trouble(error.message);
      this.dueMs = Date.now() + RETRY_MS;
    } finally {
      this.isBusy = false;
      if (this.isWanted) this.hurry();
    }
  }
}
