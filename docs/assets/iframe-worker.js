// Search in pages that were opened from a disk (file://), where browsers start no worker: a hidden frame stands in.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      frame.srcdoc = "<!doctype html><title>search</title><body></body>"
      this.ready = new Promise(resolve => {
        frame.onload = () => {
          const inside = frame.contentWindow
          // The script believes that it is a worker: what it posts comes out here, what it loads comes one by one.
          inside.postMessage = data => this.dispatchEvent(new MessageEvent("message", { data }))
          inside.importScripts = (...urls) =>
            urls.reduce((before, next) => before.then(() => this.load(inside, next)), Promise.resolve())
          this.load(inside, new URL(url, document.baseURI).href).then(() => resolve(inside))
        }
      })
      const place = () => document.body.appendChild(frame)
      document.body ? place() : addEventListener("DOMContentLoaded", place)
    }

    load(inside, url) {
      return new Promise((resolve, reject) => {
        const script = inside.document.createElement("script")
        script.src = url
        script.onload = resolve
        script.onerror = reject
        inside.document.body.appendChild(script)
      })
    }

    postMessage(data) {
      this.ready.then(inside => inside.dispatchEvent(new inside.MessageEvent("message", { data })))
    }
  }
  window.Worker = window.IFrameWorker
}
