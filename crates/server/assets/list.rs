&[
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-CqEJ80aj.js", include_bytes!("assets/console-CqEJ80aj.js").as_slice()),
    ("assets/console-Pn6RoRxe.css", include_bytes!("assets/console-Pn6RoRxe.css").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
